"""Email backend for Django: `EMAIL_BACKEND = "reveille_django.EmailBackend"`.

The setting `REVEILLE` has the arguments of `reveille.Client`, and may be absent. The key of an email is its header
`X-Reveille-Key`, else its `Message-ID`, else it is drawn: then only the retries of this one call are harmless. With
`"first_wins": True` in the setting, another email under a key that is known sends nothing, instead of being refused:
for jobs that render the email anew when they are repeated.
"""

from __future__ import annotations

import mimetypes
from email.message import Message
from email.utils import getaddresses, parseaddr
from typing import Any, Sequence

from django.conf import settings
from django.core.mail import EmailMessage, make_msgid
from django.core.mail.backends.base import BaseEmailBackend

from reveille import Attachment, Client, ReveilleError, literal

# Django has them as attributes of the email; `Date` and `Message-ID` are Reveille's own.
_NOT_PASSED = {"x-reveille-key", "message-id", "date", "from", "to", "cc", "bcc", "reply-to", "subject"}


class EmailBackend(BaseEmailBackend):
    """Each recipient in To, Cc and Bcc gets an email of its own: `To` has its own address, and `Cc` those in Cc."""

    def __init__(self, fail_silently: bool = False, client: Client | None = None, **_others: Any) -> None:
        super().__init__(fail_silently=fail_silently)
        options = dict(getattr(settings, "REVEILLE", {}))
        self.first_wins = options.pop("first_wins", False)
        self.client = client or Client(**options)

    def send_messages(self, email_messages: Sequence[EmailMessage]) -> int:
        sent = 0
        for email in email_messages:
            try:
                sent += self._send(email)
            except (ReveilleError, ValueError):
                if not self.fail_silently:
                    raise
        return sent

    def _send(self, email: EmailMessage) -> int:
        if not email.recipients():
            return 0
        given = {name.lower(): str(value) for name, value in email.extra_headers.items()}
        body = literal(str(email.body))
        bodies = {"html": body} if email.content_subtype == "html" else {"text": body}
        for content, kind in getattr(email, "alternatives", None) or ():
            if kind != "text/html":
                raise ValueError(f"Reveille sends text and HTML, and no alternative of type {kind}")
            bodies["html"] = literal(str(content))
        sender = given.get("from", str(email.from_email))
        reply_to = given.get("reply-to") or ", ".join(map(str, email.reply_to))
        for field in (sender, reply_to):
            if sum("@" in address for _, address in getaddresses([field])) > 1:
                raise ValueError(f"Reveille takes one address in From, and one in Reply-To: {field}")
        passed = {name: value for name, value in email.extra_headers.items() if name.lower() not in _NOT_PASSED}
        self.client.send(
            given.get("x-reveille-key") or given.get("message-id", "").strip("<>") or make_msgid().strip("<>"),
            to=[parseaddr(one)[1] for one in email.recipients()],
            cc=[str(one) for one in email.cc],
            sender=sender,
            reply_to=reply_to or None,
            subject=literal(str(email.subject)),
            headers={name: literal(str(value)) for name, value in passed.items()} or None,
            attachments=[_attachment(one) for one in email.attachments],
            first_wins=self.first_wins,
            **bodies,
        )
        return 1


def _attachment(given: Any) -> Attachment:
    """Returns an attachment of Django: file name, content and type, or a part of an email."""
    content_id = ""
    if isinstance(given, Message):
        name, content, kind = given.get_filename(), given.get_payload(decode=True), given.get_content_type()
        content_id = str(given.get("Content-ID", "")).strip("<> ")
        if content is None:
            content = given.get_payload(0).as_bytes()
    else:
        name, content, kind = (*given, None, None)[:3]
    kind = kind or mimetypes.guess_type(name or "")[0] or "application/octet-stream"
    if isinstance(content, (EmailMessage, Message)):
        content = (content.message() if isinstance(content, EmailMessage) else content).as_bytes()
    if kind.startswith("message/"):
        # Such a file may not be in base64 (RFC 2046).
        kind = "application/octet-stream"
    if isinstance(content, str):
        content, kind = content.encode(), f"{kind}; charset=utf-8" if kind.startswith("text/") else kind
    file = (name or "attachment", content, kind)
    return (*file, content_id) if content_id else file
