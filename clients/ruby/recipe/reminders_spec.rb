# frozen_string_literal: true

require_relative "reveille_node"

# What an application promises about its reminders. The clock is moved on instead of waiting.
RSpec.describe "Reminders" do
  let(:node) { RSpec.configuration.reveille_node }

  # The application's code.
  def remind(client, user, **options)
    client.send("reminder-#{user}", to: "#{user}@example.com", sender: "App <app@example.com>",
                                    subject: "Your trial ends", text: "It ends tomorrow.", **options)
  end

  it "come once a day from a daily schedule" do
    schedule = { timing: { daily: { hour: 7, minute: 30 } }, zone: "Europe/Berlin",
                 content: { sender: "app@example.com", subject: "Your day", text: "Two tasks." },
                 audience: { recipients: [{ address: "daily@example.com" }] } }
    2.times { node.client.put_schedule("digest", schedule) }
    (1..3).each do |day|
      node.advance("24h")
      expect(node.emails("daily@example.com").size).to eq(day)
    end
  end

  it "are sent once by a job that runs twice" do
    expect(Array.new(2) { remind(node.client, "ann")["replayed"] }).to eq([false, true])
    node.advance("20h")
    expect(node.emails("ann@example.com").map { |email| email["subject"] }).to eq(["Your trial ends"])
  end

  it "come at their time, unless they are cancelled" do
    at = node.now + (20 * 3600)
    %w[bob eve].each { |user| remind(node.client, user, at: at) }
    node.advance("19h")
    expect(node.emails("bob@example.com")).to be_empty
    node.client.cancel("reminder-eve")
    node.advance("2h")
    expect(node.emails("bob@example.com", count: 1).size).to eq(1)
    expect(node.emails("eve@example.com")).to be_empty
  end

  it "go to all at most once a day, and again after 20 hours" do
    users = Array.new(5) { |number| "reader-#{number}@example.com" }
    news = { timing: { at: (node.now + (3650 * 86_400)).iso8601 }, zone: "Etc/UTC", policies: { minGap: "72000s" },
             content: { sender: "app@example.com", subject: "News", text: "Three articles." },
             audience: { recipients: [{ address: "editor@example.com" }] } }
    node.client.put_schedule("news", news)
    # Each start of the job has a key of its own.
    node.client.trigger("news", "first", recipients: users)
    node.advance("1h")
    again = -> { node.client.trigger("news", "second", recipients: users) }
    expect(&again).to raise_error(Reveille::Error) { |error| expect(error.reason).to eq("INSIDE_GAP") }
    # Only who is new gets it.
    node.client.trigger("news", "third", recipients: [*users, "new@example.com"])
    expect([*users, "new@example.com"].map { |user| node.emails(user, count: 1).size }).to all(eq(1))
    node.advance("20h")
    node.client.trigger("news", "fourth", recipients: users)
    expect(users.map { |user| node.emails(user, count: 2).size }).to all(eq(2))
  end
end
