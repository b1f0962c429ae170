"""The string formats of JSON Schema that can be enforced, each as one regular expression.

Every expression describes texts that the format's own specification allows; where the specification has no
bound (a fraction of a second, a label), there is one here, so that an answer cannot run for ever. Written in
the syntax that Python's re and Rust's regex read alike.
"""

from __future__ import annotations

from types import MappingProxyType

# RFC 3339, section 5.6. Year 0000 has no date in Python's calendar; leap seconds are left out.
_YEAR = r"(?:[0-9]{3}[1-9]|[0-9]{2}[1-9][0-9]|[0-9][1-9][0-9]{2}|[1-9][0-9]{3})"
_LEAP_YEAR = r"(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
_DATE = (
    rf"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    rf"|02-(?:0[1-9]|1[0-9]|2[0-8]))|{_LEAP_YEAR}-02-29)"
)
_TIME = (
    r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)

# RFC 3339, appendix A.
_DURATION_DATE = r"(?:[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?|[0-9]{1,9}M(?:[0-9]{1,9}D)?|[0-9]{1,9}D)"
_DURATION_TIME = r"T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S)"

# RFC 1123: a label has at most 63 characters and a name 253. Seven labels of 32 stay below both.
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?"
_HOSTNAME = rf"{_LABEL}(?:\.{_LABEL}){{0,6}}"

# RFC 5321, section 4.1.2: a dot-string before the @, at most 64 characters.
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
_EMAIL = rf"{_ATOM}{{1,20}}(?:\.{_ATOM}{{1,20}}){{0,2}}@{_HOSTNAME}"

_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = rf"{_OCTET}(?:\.{_OCTET}){{3}}"


def _ipv6() -> str:
    """RFC 4291, section 2.2, forms 1 and 2: eight groups, or fewer around one "::"."""
    group = r"[0-9a-fA-F]{1,4}"
    forms = [rf"{group}(?::{group}){{7}}"]
    for num_left in range(8):
        left = rf"{group}(?::{group}){{{num_left - 1}}}" if num_left else ""
        right = rf"(?:{group}(?::{group}){{0,{6 - num_left}}})?" if num_left < 7 else ""
        forms.append(f"{left}::{right}")
    return f"(?:{'|'.join(forms)})"


# RFC 3986, without the rarer forms of an authority.
_SEGMENT = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})"
_URI = (
    rf"[A-Za-z][A-Za-z0-9+.-]{{0,15}}:(?://{_HOSTNAME}(?::[0-9]{{1,5}})?(?:/{_SEGMENT}*)*"
    rf"|{_SEGMENT}+(?:/{_SEGMENT}*)*)(?:\?(?:{_SEGMENT}|[/?])*)?(?:#(?:{_SEGMENT}|[/?])*)?"
)
_HEX = "[0-9a-fA-F]"

FORMATS = MappingProxyType(
    {
        "date": _DATE,
        "time": _TIME,
        "date-time": f"{_DATE}T{_TIME}",
        "duration": (rf"P(?:{_DURATION_DATE}(?:{_DURATION_TIME})?|{_DURATION_TIME}|[0-9]{{1,9}}W)"),
        "email": _EMAIL,
        "hostname": _HOSTNAME,
        "ipv4": _IPV4,
        "ipv6": _ipv6(),
        "uri": _URI,
        "uuid": rf"{_HEX}{{8}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{4}}-{_HEX}{{12}}",
    }
)
