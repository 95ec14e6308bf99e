"""Tests of the email backend for Django, against `reveille dev`. clients/test starts it."""

import unittest

import django
from django.conf import settings
from django.core.mail import EmailMessage, EmailMultiAlternatives, get_connection, send_mail
from django.test import override_settings

from reveille import ReveilleError
from test_reveille import emails, parsed, read

settings.configure(
    EMAIL_BACKEND="reveille_django.EmailBackend",
    DEFAULT_FROM_EMAIL="News <news@example.com>",
    REVEILLE={"total": 10},
)
django.setup()


class Backend(unittest.TestCase):
    def test_job_that_runs_twice_sends_once(self):
        for _ in range(2):
            email = EmailMultiAlternatives(
                "Grüße, {{ name }}",
                "Hello {{ you }}.",
                to=["Ann <py-django@example.com>"],
                reply_to=["Help <help@example.com>"],
                headers={"X-Reveille-Key": "py-django", "X-Team": "us"},
            )
            email.attach_alternative("<b>Hello {{ you }}.</b>", "text/html")
            self.assertEqual(email.send(), 1)
        [caught] = emails("py-django@example.com")
        self.assertEqual(caught["subject"], "Grüße, {{ name }}")
        source = read(f"/emails/{caught['number']}/source")
        headers = ["X-Team: us", "From: News <news@example.com>", "Reply-To: Help <help@example.com>"]
        for part in ["Hello {{ you }}.", "<b>Hello {{ you }}.</b>", *headers]:
            self.assertIn(part, source)

    def test_job_that_renders_anew_is_refused_unless_the_first_email_wins(self):
        def email(body):
            return EmailMessage("Hello", body, to=["dj-anew@example.com"], headers={"X-Reveille-Key": "dj-anew"})

        email("At 9:00.").send()
        with self.assertRaises(ReveilleError) as refused:
            email("At 9:01.").send()
        self.assertEqual(refused.exception.reason, "REQUEST_ID_REUSED")
        with override_settings(REVEILLE={"first_wins": True}):
            self.assertEqual(email("At 9:01.").send(), 1)
        [caught] = emails("dj-anew@example.com")
        self.assertIn("At 9:00.", read(f"/emails/{caught['number']}/source"))

    def test_each_recipient_gets_a_copy(self):
        copies = {"cc": ["Zoë <py-copy-cc@example.com>"], "bcc": ["py-copy-bcc@example.com"]}
        for _ in range(2):
            headers = {"Message-ID": "<py-copy@example.com>"}
            EmailMessage("Hello", "Hello.", to=["py-copy-to@example.com"], headers=headers, **copies).send()
        copied = [(caught["recipient"], parsed(caught["recipient"])) for caught in emails("py-copy-", 3)]
        self.assertEqual(len({recipient for recipient, _ in copied}), 3)
        for recipient, email in copied:
            self.assertEqual((email["To"], email["Cc"]), (recipient, "Zoë <py-copy-cc@example.com>"))

    def test_html_alone_and_a_drawn_key(self):
        email = EmailMessage("Hello", "<b>Hello.</b>", to=["py-html@example.com"])
        email.content_subtype = "html"
        self.assertEqual(email.send(), 1)
        self.assertIn("<b>Hello.</b>", read(f"/emails/{emails('py-html@example.com')[0]['number']}/source"))

    def test_attachments_arrive_as_they_were_given(self):
        for _ in range(2):
            email = EmailMessage("Hello", "Hello.", to=["dj-file@example.com"], headers={"X-Reveille-Key": "dj-file"})
            email.attach("Rechnung für Zoë.pdf", b"%PDF-1.7\n\x00\xff", "application/pdf")
            email.attach("a.txt", "naïve", "text/plain")
            email.attach("no-type.bin", b"\x00\x01", None)
            self.assertEqual(email.send(), 1)
        files = {part.get_filename(): part for part in parsed("dj-file@example.com").iter_attachments()}
        self.assertEqual(files["Rechnung für Zoë.pdf"].get_content(), b"%PDF-1.7\n\x00\xff")
        self.assertEqual(files["Rechnung für Zoë.pdf"].get_content_type(), "application/pdf")
        self.assertEqual(files["a.txt"].get_payload(decode=True).decode(), "naïve")
        self.assertEqual(files["no-type.bin"].get_content(), b"\x00\x01")

    def test_second_address_in_from_or_reply_to_is_refused_here(self):
        two = ["Doe, Jane <a@example.com>", "b@example.com"]
        for given in ({"reply_to": two}, {"from_email": ", ".join(two)}, {"headers": {"Reply-To": ", ".join(two)}}):
            with self.assertRaisesRegex(ValueError, "one address"):
                EmailMessage("Hello", "Hello.", to=["dj-two@example.com"], **given).send()

    def test_what_cannot_be_sent_is_refused_unless_silent(self):
        with self.assertRaises(ReveilleError):
            send_mail("Hello", "Hello.", "no address", ["py-none@example.com"])
        silent = get_connection(fail_silently=True)
        self.assertEqual(send_mail("Hello", "Hello.", "no address", ["py-none@example.com"], connection=silent), 0)


if __name__ == "__main__":
    unittest.main()
