# frozen_string_literal: true

# Tests of the client against `reveille dev`. clients/test starts it, and the stub of a broken network.

require "reveille"
require_relative "mailbox"

RSpec.describe Reveille::Client do
  include Mailbox

  sender = "News <news@example.com>"
  stub = ENV.fetch("REVEILLE_STUB")
  let(:client) { described_class.new }

  define_method(:deliver) do |key, text = "Hello.", by: client, to: "#{key}@example.com", **options|
    by.send(key, to: to, sender: sender, subject: "Hello", text: text, **options)
  end

  def run_of(sent) = sent["message"]["run"]["run"]

  def schedule(name)
    { timing: { daily: { hour: 9 } }, zone: "Europe/Berlin", policies: { minGap: "0s", overlap: "OVERLAP_ALLOW" },
      content: { sender: "news@example.com", subject: "Hello {{ name }}", text: "Hello." },
      audience: { columns: ["name"], recipients: [{ address: "#{name}@example.com", values: ["Own"] }] } }
  end

  def refusal
    yield
    raise "it was not refused"
  rescue Reveille::Error => e
    e
  end

  it "sends nothing when the same key comes again" do
    first, again = deliver("rb-once"), deliver("rb-once")
    expect([first["replayed"], again["replayed"]]).to eq([false, true])
    expect(run_of(again)).to eq(run_of(first))
    expect(emails("rb-once@example.com").size).to eq(1)
  end

  it "refuses other content under the same key" do
    deliver("rb-strict")
    error = refusal { deliver("rb-strict", "Something else.") }
    expect([error.status, error.reason, error.may_have_taken_effect?]).to eq([409, "REQUEST_ID_REUSED", false])
    expect(emails("rb-strict@example.com").size).to eq(1)
  end

  it "lets the first call win where that is asked for" do
    first = deliver("rb-first", "By the first server.", first_wins: true, cc: ["team@example.com"])
    second = deliver("rb-first", "By the second server.", first_wins: true)
    expect([second["replayed"], run_of(second)]).to eq([true, run_of(first)])
    found = emails("rb-first@example.com")
    expect(found.size).to eq(1)
    expect(source(found[0])).to include("By the first server.", "Cc: team@example.com")
  end

  it "fills in variables, and leaves a literal text as it is" do
    to = %w[ann bob].map { |name| { address: "rb-#{name}@example.com", name: name.capitalize, city: "Ulm" } }
    braces = "{{ name }} {% if %} {# #} {{{%"
    client.send("rb-variables", to: to, sender: sender, subject: "Hello {{ name }} in {{ city }} by {{ team }}",
                                text: Reveille.literal(braces), variables: { team: "us" },
                                headers: { "X-Team" => "{{ team }}" })
    %w[ann bob].each do |name|
      email, = emails("rb-#{name}@example.com")
      expect(email["subject"]).to eq("Hello #{name.capitalize} in Ulm by us")
      expect(source(email)).to include(braces, "X-Team: us")
    end
  end

  it "treats an empty variable of the environment as none" do
    set = ENV.to_h
    ENV.update("REVEILLE_URL" => "", "REVEILLE_CA_FILE" => "")
    [nil, ENV.fetch("TLS_URL")].each do |url|
      refusal { described_class.new(url: url, total: 1).request("GET", "/v1/nothing") }
    end
  ensure
    ENV.replace(set)
  end

  it "asks the next node if one is down" do
    by = Reveille::Client.new(url: "http://127.0.0.1:1, #{ENV.fetch("REVEILLE_URL")}")
    sent = by.send("rb-next-node", to: "rb-next-node@example.com", sender: sender, subject: "Hello", text: "Hello.")
    expect(sent["replayed"]).to be(false)
  end

  it "returns JSON lines as an array" do
    to = %w[rb-lines-1@example.com rb-lines-2@example.com]
    run = run_of(client.send("rb-lines", to: to, sender: sender, subject: "Hello", text: "Hello."))
    lines = client.request("GET", "/v1/runs/#{run}/recipients/export")
    expect(lines.map { |line| line["address"] }).to eq(to)
  end

  it "cancels a message of the future" do
    at = Time.now + 3600
    deliver("rb-future", at: at)
    message = client.message("rb-future")
    expect(message["recipients"][0]["state"]).to eq("RECIPIENT_STATE_PENDING")
    expect(Time.iso8601(message["sendTime"])).to be_within(1).of(at)
    client.cancel("rb-future")
    expect(client.message("rb-future")["recipients"][0]["state"]).to eq("RECIPIENT_STATE_CANCELLED")
  end

  it "sends once although an answer is lost" do
    flaky = described_class.new(url: "#{stub}/once")
    began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
    expect(deliver("rb-lost-answer", by: flaky)["replayed"]).to be(true)
    expect(Process.clock_gettime(Process::CLOCK_MONOTONIC) - began).to be >= 1
    expect(emails("rb-lost-answer@example.com").size).to eq(1)
  end

  it "names the wrong field" do
    error = refusal { deliver("rb-wrong", "{{ nothing }}") }
    expect([error.status, error.reason]).to eq([400, "INVALID_FIELD"])
    expect(error.fields[0]["field"]).to include("text")
  end

  it "refuses an empty key and uneven recipients itself" do
    expect { deliver("") }.to raise_error(ArgumentError)
    uneven = ["a@example.com", { address: "b@example.com", name: "B" }]
    expect { deliver("rb-uneven", to: uneven) }.to raise_error(ArgumentError)
  end

  it "refuses a recipient with a value of nil itself" do
    [{ address: "rb-nil@example.com", link: nil }, { address: nil }].each do |to|
      expect { deliver("rb-nil", to: to) }.to raise_error(ArgumentError)
    end
    expect { deliver("rb-nil", variables: { link: nil }) }.to raise_error(ArgumentError)
  end

  it "repeats an answer with Retry-After" do
    expect(deliver("rb-busy", by: described_class.new(url: "#{stub}/busy"))["replayed"]).to be(false)
  end

  it "reads in events what became of a message" do
    cursor = client.events("latest", wait: 0)["cursor"]
    run = run_of(deliver("rb-events"))
    seen = []
    20.times do
      page = client.events(cursor, wait: 1)
      cursor = page["cursor"]
      seen += page["events"].select { |event| event["run"] == run }.map { |event| event["type"] }
      break if seen.include?("EVENT_TYPE_RUN_FINISHED")
    end
    expect(seen).to include("EVENT_TYPE_RECIPIENTS_SENT")
    expect(seen.count("EVENT_TYPE_RUN_FINISHED")).to eq(1)
    opened = client.events(types: ["EVENT_TYPE_RUN_OPENED"], wait: 0)["events"]
    expect(opened.map { |event| event["type"] }.uniq).to eq(["EVENT_TYPE_RUN_OPENED"])
  end

  it "misses no events from latest on" do
    page = described_class.new(url: "#{stub}/missed", total: 3).events("latest", wait: 1)
    expect([page["events"].size, page["cursor"]]).to eq([1, "8.0"])
  end

  it "puts, changes and triggers a schedule once" do
    first = client.put_schedule("rb-put", schedule("rb-put"))
    expect(client.put_schedule("rb-put", schedule("rb-put"))["etag"]).to eq(first["etag"])
    changed = client.put_schedule("rb-put", schedule("rb-put").merge(zone: "Asia/Tokyo"))
    expect([changed["zone"], changed["number"]]).to eq(["Asia/Tokyo", first["number"]])
    runs = Array.new(2) { client.trigger("rb-put", "rb-put-2026-W47")["run"]["run"] }
    expect(runs.uniq.size).to eq(1)
    expect(emails("rb-put@example.com").size).to eq(1)
  end

  it "triggers with a list, and goes to the first list" do
    client.put_schedule("rb-list", schedule("rb-list-own"))
    lists = %w[one two].map { |server| [{ address: "rb-list-#{server}@example.com", name: server }] }
    answers = lists.map { |to| client.trigger("rb-list", "rb-list-2026-W47", recipients: to, first_wins: true) }
    expect(answers.map { |answer| answer["run"]["run"] }.uniq.size).to eq(1)
    expect(answers.map { |answer| answer["replayed"] }).to eq([false, true])
    error = refusal { client.trigger("rb-list", "rb-list-2026-W47", recipients: lists[1]) }
    expect(error.reason).to eq("REQUEST_ID_REUSED")
    expect(emails("rb-list-one@example.com")[0]["subject"]).to eq("Hello one")
    expect(emails("rb-list-two@example.com", 0) + emails("rb-list-own@example.com", 0)).to eq([])
  end

  it "puts a schedule again that was made of a template" do
    client.request("PUT", "/v1/templates/rb-template", schedule("rb")[:content])
    to = { address: "rb-template@example.com", name: "Ann" }
    client.send("rb-template", to: to, template: "rb-template", variables: {}, headers: {}, cc: [], validate_only: true)
    made = schedule("rb-of-template").merge(template: "rb-template").except(:content)
    %w[Europe/Berlin Asia/Tokyo].each do |zone|
      put = client.put_schedule("rb-of-template", made.merge(zone: zone))
      expect(put.values_at("zone", "template")).to eq([zone, "rb-template@1"])
    end
    expect(client.put_schedule("rb-of-template", schedule("rb-of-template"))["template"]).to eq("")
  end

  it "makes each call for the tenant of the client" do
    shop, path = described_class.new(tenant: "rb-shop"), "/v1/schedules/rb-tenant"
    expect(client.put_schedule("rb-tenant", schedule("rb-tenant"))["tenant"]).to eq("default")
    [["GET", path], ["DELETE", path], ["POST", "#{path}/pause", {}], ["GET", "#{path}?stale=true"]].each do |call|
      expect(refusal { shop.request(*call) }.reason).to eq("SCHEDULE_NOT_FOUND")
    end
    expect(shop.put_schedule("rb-tenant", schedule("rb-tenant"))["tenant"]).to eq("rb-shop")
    changed = shop.request("PATCH", path, { zone: "Asia/Tokyo" }, query: { updateMask: "zone" })["schedule"]
    expect(changed.values_at("tenant", "zone")).to eq(["rb-shop", "Asia/Tokyo"])
    shop.request("DELETE", path)
    kept = shop.request("GET", path, query: { tenant: "default" })["schedule"]
    expect(kept["zone"]).to eq("Europe/Berlin")
    expect(shop.request("GET", "/v1/cluster/members")).to include("members")
  end

  it "has deleted although an answer is lost" do
    client.put_schedule("rb-delete", schedule("rb-delete"))
    error = refusal { client.request("DELETE", "/v1/schedules/rb-delete", query: { etag: "1.1" }) }
    expect(error.reason).to eq("ETAG_MISMATCH")
    client.request("DELETE", "/v1/schedules/rb-delete", query: { validateOnly: true })
    flaky, query = described_class.new(url: "#{stub}/once"), { validateOnly: false }
    expect(flaky.request("DELETE", "/v1/schedules/rb-delete", query: query)).to eq({})
    error = refusal { client.request("DELETE", "/v1/schedules/rb-delete") }
    expect(error.reason).to eq("SCHEDULE_NOT_FOUND")
  end

  it "makes a write once that keeps no key" do
    error = refusal { client.request("POST", "/v1/clock/advance", { by: "2s" }) }
    expect(error.fields[0]["field"]).to eq("idempotency-key")
    flaky = described_class.new(url: "#{stub}/once")
    error = refusal { flaky.request("POST", "/v1/clock/advance", { by: "2s" }, key: "") }
    expect([error.status, error.may_have_taken_effect?]).to eq([0, true])
  end

  it "keeps a drawn key over its retries" do
    flaky = described_class.new(url: "#{stub}/once")
    flaky.put_schedule("rb-flaky", schedule("rb-flaky"))
    expect(flaky.put_schedule("rb-flaky", schedule("rb-flaky").merge(zone: "Asia/Tokyo"))["zone"]).to eq("Asia/Tokyo")
    flaky.trigger("rb-flaky", "rb-flaky-2026-W47")
    expect(emails("rb-flaky@example.com").size).to eq(1)
  end

  it "calls a node with TLS and tokens" do
    url, ca, token = ENV.values_at("TLS_URL", "TLS_CA", "TLS_TOKEN")
    shop = described_class.new(url: url, ca_file: ca, token: token, tenant: "shop")
    expect(shop.put_schedule("rb", schedule("rb"))["tenant"]).to eq("shop")
    { { ca_file: ca, token: token } => [403, "NOT_PERMITTED"],
      { ca_file: ca, token: "rvt_wrong" } => [401, "TOKEN_NOT_VALID"],
      { token: token } => [0, ""] }.each do |options, expected|
      error = refusal { described_class.new(url: url, **options).put_schedule("rb", schedule("rb")) }
      expect([error.status, error.reason, error.may_have_taken_effect?]).to eq([*expected, false])
    end
  end

  describe "a call that fails" do
    def failure(verb = "POST", **options)
      refusal { described_class.new(total: 1.5, **options).request(verb, "/v1/cluster") }
    end

    it "is marked after the last retry if its outcome is unknown" do
      error = failure(url: "#{stub}/unknown")
      expect([error.status, error.reason, error.may_have_taken_effect?]).to eq([504, "OUTCOME_UNKNOWN", true])
      expect(failure("GET", url: "#{stub}/unknown").may_have_taken_effect?).to be(false)
      expect(failure(url: "#{stub}/silent", timeout: 0.5).may_have_taken_effect?).to be(true)
    end

    it "has no answer if the answer is cut" do
      %w[lost cut].each do |kind|
        error = failure("GET", url: "#{stub}/#{kind}")
        expect([error.status, error.may_have_taken_effect?]).to eq([0, false])
      end
    end

    it "ends at the timeout although an answer comes slowly" do
      [0.5, 20].each do |timeout|
        began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        error = failure(url: "#{stub}/drip", timeout: timeout)
        expect([error.status, error.may_have_taken_effect?]).to eq([0, true])
        expect(Process.clock_gettime(Process::CLOCK_MONOTONIC) - began).to be < 4
      end
    end

    it "does not wait for a long Retry-After" do
      error = failure(url: "#{stub}/later")
      expect([error.status, error.retry_after, error.may_have_taken_effect?]).to eq([503, 3600, false])
    end

    it "has the oldest cursor if a cursor is too old" do
      error = refusal { described_class.new(url: "#{stub}/old").events("1.0") }
      expect([error.reason, error.index]).to eq(%w[CURSOR_TOO_OLD 1042.3])
    end

    it "did nothing if the node cannot be reached" do
      error = failure(url: "http://127.0.0.1:1")
      expect([error.status, error.may_have_taken_effect?]).to eq([0, false])
    end
  end
end
