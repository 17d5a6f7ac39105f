"""Messages of devices: the inverse of the codecs' decoders."""

from collections.abc import Iterable

from drivers.codecs import iscli, tl1


def iscli_event(event: iscli.Event, name: str) -> bytes:
    """The bytes of a switch with that name for an event, after the previous prompt."""
    if isinstance(event, iscli.Pager):
        return iscli.PAGER.encode("ascii")
    if isinstance(event, iscli.PasswordWanted):
        return b"Password:"
    if isinstance(event, iscli.UserWanted):
        return b"Login:"
    text = "".join(f"{line}\r\n" for line in (event.echo, *event.lines))
    if not event.echo and not event.lines:
        text = ""
    return f"{text}{name}{event.mode}".encode("ascii")


def tl1_event(event: tl1.Event) -> bytes:
    match event:
        case tl1.Echo(text):
            return text.encode("latin-1") + b"\r\n"
        case tl1.Acknowledgement(code, ctag):
            return f"{code} {ctag}\r\n<".encode("latin-1") + b"\r\n"
        case tl1.Reply(header, ctag, completion, lines):
            return _tl1_message(header, f"M  {ctag} {completion.value}", lines)
        case tl1.Autonomous(header, alarm_code, tag, verb, lines):
            return _tl1_message(header, f"{alarm_code} {tag} {verb}", lines)


def _tl1_message(header: tl1.Header, identification: str, lines: Iterable[str]) -> bytes:
    head = f"\r\n\n   {header.source} {header.date} {header.time}\r\n{identification}\r\n"
    return (head + "".join(f"   {line}\r\n" for line in lines) + ";").encode("latin-1") + b"\r\n"
