"""What an application promises about its reminders. The clock is moved on instead of waiting."""

from datetime import timedelta

import pytest

import reveille


def remind(client, user, **options):
    """The application's code."""
    return client.send(
        f"reminder-{user}",
        to=f"{user}@example.com",
        sender="App <app@example.com>",
        subject="Your trial ends",
        text="It ends tomorrow.",
        **options,
    )


def test_daily_schedule_sends_once_a_day(node):
    schedule = {
        "timing": {"daily": {"hour": 7, "minute": 30}},
        "zone": "Europe/Berlin",
        "content": {"sender": "app@example.com", "subject": "Your day", "text": "Two tasks."},
        "audience": {"recipients": [{"address": "daily@example.com"}]},
    }
    for _ in range(2):
        node.client.put_schedule("digest", schedule)
    for day in (1, 2, 3):
        node.advance("24h")
        assert len(node.emails("daily@example.com")) == day


def test_job_that_runs_twice_sends_once(node):
    assert [remind(node.client, "ann")["replayed"] for _ in range(2)] == [False, True]
    node.advance("20h")
    assert [email["subject"] for email in node.emails("ann@example.com")] == ["Your trial ends"]


def test_reminder_comes_at_its_time_unless_it_is_cancelled(node):
    at = node.now() + timedelta(hours=20)
    remind(node.client, "bob", at=at)
    remind(node.client, "eve", at=at)
    node.advance("19h")
    assert node.emails("bob@example.com") == []
    node.client.cancel("reminder-eve")
    node.advance("2h")
    assert len(node.emails("bob@example.com", count=1)) == 1
    assert node.emails("eve@example.com") == []


def test_news_go_to_all_at_most_once_a_day_and_again_after_20_hours(node):
    users = [f"reader-{number}@example.com" for number in range(5)]
    news = {
        "timing": {"at": (node.now() + timedelta(days=3650)).isoformat()},
        "zone": "Etc/UTC",
        "policies": {"minGap": "72000s"},
        "content": {"sender": "app@example.com", "subject": "News", "text": "Three articles."},
        "audience": {"recipients": [{"address": "editor@example.com"}]},
    }
    node.client.put_schedule("news", news)
    # Each start of the job has a key of its own.
    node.client.trigger("news", "first", recipients=users)
    node.advance("1h")
    with pytest.raises(reveille.ReveilleError) as refused:
        node.client.trigger("news", "second", recipients=users)
    assert refused.value.reason == "INSIDE_GAP"
    # Only who is new gets it.
    node.client.trigger("news", "third", recipients=[*users, "new@example.com"])
    assert [len(node.emails(user, count=1)) for user in [*users, "new@example.com"]] == [1] * 6
    node.advance("20h")
    node.client.trigger("news", "fourth", recipients=users)
    assert [len(node.emails(user, count=2)) for user in users] == [2] * 5
