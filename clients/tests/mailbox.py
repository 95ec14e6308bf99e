#!/usr/bin/env python3
"""Checks that no recipient has two emails in the mailbox at this URL: each key of the tests has an address of its own.

All READMEs send their example to ann@example.com under one key, so there is one email to her.
"""
import collections
import json
import sys
import urllib.request

emails, page = [], 1
while True:
    with urllib.request.urlopen(f"{sys.argv[1]}/emails.json?per_page=1000&page={page}") as answer:
        rows = json.load(answer)
    # A page behind the last one is empty.
    if not rows:
        break
    emails += rows
    page += 1
count = collections.Counter(email["recipient"] for email in emails)
count.setdefault("ann@example.com", 0)
wrong = {recipient: number for recipient, number in count.items() if number != 1}
for recipient, number in wrong.items():
    print(f"{recipient} got {number} emails")
print(f"mailbox: {len(count) - len(wrong)} passed, {len(wrong)} failed")
sys.exit(bool(wrong))
