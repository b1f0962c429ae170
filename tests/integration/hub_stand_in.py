"""Local stand-ins for the two places models come from: a hub and a package index, on 127.0.0.1."""

import hashlib
import json
import re
import threading
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repository:
    files: Mapping[str, bytes]
    token: str | None = None
    is_gated: bool = False


@dataclass
class StandIn:
    """A running server: where it is and what was asked of it, as "METHOD path"."""

    url: str
    requests: list[str] = field(default_factory=list)


@contextmanager
def hub(repositories: Mapping[str, Repository]) -> Iterator[StandIn]:
    """Speaks what huggingface_hub needs: model info, HEAD and GET (with ranges) of files, error codes."""

    class Handler(_QuietHandler):
        def answer(self, path: str) -> None:
            for name, repository in repositories.items():
                if path == f"/api/models/{name}" or path.startswith(f"/api/models/{name}/revision/"):
                    return self._information(name, repository)
                if path.startswith(f"/{name}/resolve/"):
                    return self._file(repository, path.removeprefix(f"/{name}/resolve/").split("/", 1)[1])
            return self.refuse(401, "RepoNotFound")

        def _may_read(self, repository: Repository) -> bool:
            if repository.is_gated:
                self.refuse(403, "GatedRepo")
                return False
            if repository.token and self.headers.get("Authorization") != f"Bearer {repository.token}":
                self.refuse(401, "RepoNotFound")
                return False
            return True

        def _information(self, name: str, repository: Repository) -> None:
            if self._may_read(repository):
                siblings = [{"rfilename": file} for file in repository.files]
                body = json.dumps({"id": name, "modelId": name, "sha": COMMIT, "siblings": siblings}).encode()
                self.send(200, body, {"Content-Type": "application/json"})

        def _file(self, repository: Repository, name: str) -> None:
            if not self._may_read(repository):
                return
            if name not in repository.files:
                self.refuse(404, "EntryNotFound")
                return
            content = repository.files[name]
            headers = {
                "X-Repo-Commit": COMMIT,
                "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
                "Accept-Ranges": "bytes",
            }
            wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
            if wanted:
                start, stop = int(wanted[1]), int(wanted[2] or len(content) - 1) + 1
                headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(content)}"
                self.send(206, content[start:stop], headers)
            else:
                self.send(200, content, headers)

        def refuse(self, status: int, code: str) -> None:
            self.send(status, b"{}", {"X-Error-Code": code, "Content-Type": "application/json"})

    with _serving(Handler) as stand_in:
        yield stand_in


@contextmanager
def package_index(folder: Path, before_wheel: Callable[[], None] = lambda: None) -> Iterator[StandIn]:
    """A simple index (PEP 503) of the wheels in ``folder``.

    A wheel is sent in halves with ``before_wheel`` called between them, so that a test can hold it there.
    """

    class Handler(_QuietHandler):
        def answer(self, path: str) -> None:
            wheels = {wheel.name: wheel for wheel in folder.glob("*.whl")}
            if path.startswith("/simple/"):
                project = path.removeprefix("/simple/").strip("/")
                names = [name for name in wheels if name.split("-")[0].replace("_", "-") == project]
                links = "".join(f'<a href="/files/{name}">{name}</a>' for name in names)
                self.send(200 if names else 404, links.encode(), {"Content-Type": "text/html"})
            elif path.removeprefix("/files/") in wheels:
                content = wheels[path.removeprefix("/files/")].read_bytes()
                self.send(200, content, {"Content-Type": "application/zip"}, pause=before_wheel)
            else:
                self.send(404, b"", {})

    with _serving(Handler) as stand_in:
        yield stand_in


def write_wheel(folder: Path, name: str, members: Mapping[str, bytes], version: str = "1.0") -> Path:
    """A wheel of the package ``name`` whose import would fail loudly."""
    module = name.replace("-", "_")
    path = folder / f"{module}-{version}-py3-none-any.whl"
    information = f"{module}-{version}.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{module}/__init__.py", "raise AssertionError('the package was imported')\n")
        for member, content in members.items():
            archive.writestr(f"{module}/{member}", content)
        archive.writestr(
            f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        archive.writestr(
            f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{information}/RECORD", "")
    return path


class _QuietHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    stand_in: StandIn

    def answer(self, path: str) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:
        self.stand_in.requests.append(f"{self.command} {unquote(self.path)}")
        self.answer(unquote(self.path).split("?")[0])

    do_HEAD = do_GET  # noqa: N815

    def send(
        self, status: int, body: bytes, headers: Mapping[str, str], pause: Callable[[], None] = lambda: None
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            try:
                self.wfile.write(body[: len(body) // 2])
                self.wfile.flush()
                pause()
                self.wfile.write(body[len(body) // 2 :])
            except OSError:
                self.close_connection = True  # a test killed the client

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@contextmanager
def _serving(handler: type[_QuietHandler]) -> Iterator[StandIn]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    stand_in = StandIn(f"http://127.0.0.1:{server.server_address[1]}")
    handler.stand_in = stand_in
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield stand_in
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
