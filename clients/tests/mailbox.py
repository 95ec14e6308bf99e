#!/usr/bin/env python3
"""Checks that the mailbox at this URL has no two emails to one recipient: every key of the tests has its own address."""
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
twice = [f"{recipient}: {number} emails" for recipient, number in count.items() if number > 1]
print("\n".join(twice))
print(f"mailbox: {len(count) - len(twice)} passed, {len(twice)} failed")
sys.exit(bool(twice) or not count)
