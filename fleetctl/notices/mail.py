"""A notice as a mail. Blocking; send.py gives it a thread.

Over TLS, except to this machine: `smtps://` from the first byte, `smtp://` by STARTTLS.
"""

from __future__ import annotations

import smtplib
import socket
import ssl
from collections.abc import Sequence
from email.message import EmailMessage
from email.utils import formatdate
from urllib.parse import SplitResult, unquote, urlsplit

from fleetctl.controllers.kinds.notices import NoticeMessage
from fleetctl.notices.request import LOOPBACK_NAMES, TAKEN, TIMEOUT_S, SinkOutcome, describe_error

PORTS = {"smtp": 587, "smtps": 465}


class NoticeMail:
    """One mail to all of `to`. url: `smtp://user:password@host:port`, the parts percent-encoded."""

    def __init__(
        self,
        url: str,
        message: NoticeMessage,
        to: Sequence[str],
        sender: str,
    ) -> None:
        self._url = url
        self._to = to
        self._mail = _build_mail(message, to, sender)
        self._smtp: smtplib.SMTP | None = None

    def __call__(self) -> SinkOutcome:
        try:
            parts = urlsplit(self._url)
            port = parts.port
        except ValueError:
            return SinkOutcome("SMTP_URL is not a URL")
        if parts.scheme not in PORTS or not parts.hostname:
            return SinkOutcome("SMTP_URL must begin with smtp:// or smtps://, and a host")
        try:
            self._smtp = _connect_smtp(parts, port or PORTS[parts.scheme])
            if self._smtp is None:
                return SinkOutcome("its server offers no STARTTLS, and nothing goes without TLS")
            if parts.username:
                self._smtp.login(unquote(parts.username), unquote(parts.password or ""))
            refused = self._smtp.send_message(self._mail)
        except smtplib.SMTPRecipientsRefused:
            return SinkOutcome("its server refuses every recipient")
        except smtplib.SMTPResponseException as error:
            return SinkOutcome(f"its server answers {error.smtp_code}")
        except (OSError, smtplib.SMTPException, ValueError) as error:
            return SinkOutcome(f"no answer: {describe_error(error)}")
        finally:
            if self._smtp is not None:
                self._smtp.close()
        if refused:
            # The other recipients have the mail; a retry would send it to them twice.
            return SinkOutcome(
                remark=f"its server refused {len(refused)} of {len(self._to)} recipients"
            )
        return TAKEN

    def cut(self) -> None:
        """Ends the connection, wherever it hangs."""
        connection = getattr(self._smtp, "sock", None)
        if connection is not None:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # it has ended by itself


def _connect_smtp(parts: SplitResult, port: int) -> smtplib.SMTP | None:
    """Connects to the mail server; returns None where it offers no encryption."""
    host = parts.hostname or ""
    name = socket.gethostname()
    if parts.scheme == "smtps":
        context = ssl.create_default_context()
        return smtplib.SMTP_SSL(
            host,
            port,
            name,
            timeout=TIMEOUT_S,
            context=context,
        )
    smtp = smtplib.SMTP(host, port, name, timeout=TIMEOUT_S)
    smtp.ehlo()
    if smtp.has_extn("starttls"):
        smtp.starttls(context=ssl.create_default_context())
        smtp.ehlo()
    elif host not in LOOPBACK_NAMES:
        smtp.close()
        return None
    return smtp


def _build_mail(
    message: NoticeMessage,
    to: Sequence[str],
    sender: str,
) -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"] = sender, ", ".join(to)
    mail["Subject"] = f"fleetctl: {message.title}"
    mail["Date"] = formatdate()
    # Equal in every repetition, so that a mailbox shows one.
    mail["Message-ID"] = f"<{message.id}@fleetctl>"
    mail.set_content(f"{message.text}\n\nid {message.id}\n")
    return mail
