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
    schedule = { when: { daily: { hour: 7, minute: 30 } }, zone: "Europe/Berlin",
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
end
