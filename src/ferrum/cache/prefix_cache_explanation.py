"""Why a request found no more in the prefix cache: the prompt beside the nearest cached one."""

from __future__ import annotations

from collections.abc import Sequence

from ferrum.cache.prefix_tree import PrefixNode, PrefixPath
from ferrum.core.cache_use import CacheEnd, CacheExplanation


def explain(path: PrefixPath, token_ids: Sequence[int], num_found: int) -> CacheExplanation:
    """``path``: the longest one for ``token_ids``, its branch sought among all there are.

    ``num_found``: tokens that were found, where only the newest branches are looked at.
    """
    position = sum(node.num_tokens for node in path.nodes) + path.num_branch_tokens
    end, cached_token_id = _end(path, is_complete=position >= len(token_ids) - 1)
    return CacheExplanation(
        end=end,
        prompt_tokens=len(token_ids),
        cached_tokens=num_found,
        position=position,
        token_id=token_ids[position],
        cached_token_id=cached_token_id,
    )


def _end(path: PrefixPath, *, is_complete: bool) -> tuple[CacheEnd, int | None]:
    """Why the path ends, and the token with which the nearest cached prompt goes on."""
    if is_complete:
        return CacheEnd.COMPLETE, None
    if path.last is None:
        return CacheEnd.NOTHING_CACHED, None
    if path.branch is not None:
        next_token = path.branch.token_at(path.num_branch_tokens)
    else:
        next_token = _first_follower_token(path.last)
    if next_token is None:
        return CacheEnd.NOTHING_LONGER, None
    return CacheEnd.DIFFERENT_TOKEN, next_token


def _first_follower_token(node: PrefixNode) -> int | None:
    newest = next(reversed(node.children.values()), None)
    return None if newest is None else newest.token_at(0)
