# frozen_string_literal: true

require "json"
require "net/http"
require "openssl"
require "securerandom"
require "time"
require "timeout"
require "uri"

# Client of Reveille's HTTP API. It needs Ruby 3.0 and nothing else.
module Reveille
  # Returns a template that renders as this text: `{{`, `{%` and `{#` in it have no meaning.
  def self.literal(text)
    text.gsub(/\{(?=[{%#])/, '{{ "{" }}')
  end

  # A call that failed, after all retries.
  class Error < StandardError
    # Status of HTTP; 0 if there was no answer.
    attr_reader :status
    # Such as `REQUEST_ID_REUSED`; empty if a proxy answered, or nothing did.
    attr_reader :reason
    # Fields of a request that is wrong: hashes with `field` (its path) and `detail`.
    attr_reader :fields
    # With `CURSOR_TOO_OLD`, the oldest cursor of events that are kept.
    attr_reader :index
    # Seconds that the node asked to wait.
    attr_reader :retry_after

    def initialize(detail, status: 0, reason: "", fields: [], index: "", retry_after: 0, retried: false,
                   unknown: false)
      head = [status.zero? ? nil : status, reason.empty? ? nil : reason].compact.join(" ")
      super(head.empty? ? detail : "#{head}: #{detail}")
      @status, @reason, @fields, @index, @retry_after = status, reason, fields, index, retry_after
      @retried, @unknown = retried, unknown
    end

    # True if the outcome is unknown. Repeat the call later with the same key.
    def may_have_taken_effect? = @unknown

    # True if the same call may succeed later.
    def retried? = @retried

    # Records whether the outcome is unknown, over all attempts.
    attr_writer :unknown
  end

  # Calls one cluster. It holds no connection, so threads and forked processes may share it.
  #
  # Every call is repeated with the same key after 429, 502, 503, 504, any answer with `Retry-After` and a broken
  # connection, until `total` seconds have passed. So a call that returned has happened once, and a call that raised
  # says whether it may have happened.
  class Client
    VERBS = { "GET" => Net::HTTP::Get, "POST" => Net::HTTP::Post, "PUT" => Net::HTTP::Put,
              "PATCH" => Net::HTTP::Patch, "DELETE" => Net::HTTP::Delete }.freeze
    # Calls that concern no tenant. Any other call gets the tenant of the client: the node refuses it where it is no
    # field.
    WITHOUT_TENANT =
      %r{\A/v1/(audience-parts|audit-records|backups|clock|cluster|openapi|pools|relays|tenants|tokens)\b}.freeze
    # Writes whose tenant is that of the schedule in their body.
    WITH_SCHEDULE = %r{\A(POST|PUT|PATCH) /v1/(schedules(/[^/]+)?|campaigns|test-emails)(\?|\z)}.freeze
    private_constant :VERBS, :WITHOUT_TENANT, :WITH_SCHEDULE

    # url: of a node, or of several, with commas between them: any node answers, and if one does not, the next is asked.
    # tenant: of all calls, unless the query of `request` names another.
    # timeout: seconds for one attempt. It is above the node's own 15 s, so that the node's answer comes first.
    # total: seconds for a call with all its retries. The last one has at least a second.
    def initialize(url: nil, token: nil, ca_file: nil, tenant: nil, timeout: 20, total: 60)
      @nodes = (url || env("REVEILLE_URL") || "http://127.0.0.1:7600").split(",").map { |one| URI(one.strip) }
      @node = 0
      wrong = @nodes.find { |one| !one.is_a?(URI::HTTP) }
      raise ArgumentError, "the URL #{wrong} is not http://HOST:PORT or https://HOST:PORT" if wrong

      @token = token || env("REVEILLE_TOKEN")
      @ca_file = ca_file || env("REVEILLE_CA_FILE")
      @tenant, @timeout, @total = tenant, timeout, total
    end

    # Sends one email to each recipient, once for this key: the same call again sends nothing. Another content under the
    # same key is refused (`REQUEST_ID_REUSED`), unless the first call is to win.
    #
    # `to` is an address, a hash with `address` and a value for each variable of the templates, or an array of these.
    # Subject, texts and headers are templates; `Reveille.literal` makes one of a text that is not. Each attachment is
    # an array of file name, bytes and media type; with a fourth text the HTML shows it as `cid:TEXT`. The addresses in
    # `cc` are shown, and nothing is sent to them.
    def send(key, to:, sender: nil, subject: nil, text: nil, html: nil, reply_to: nil, cc: nil, headers: nil,
             variables: nil, bulk: nil, attachments: [], template: nil, at: nil, first_wins: false, pool: nil,
             priority: nil, policies: nil, validate_only: nil)
      content = { sender: sender, replyTo: reply_to, cc: cc, subject: subject, text: text, html: html,
                  headers: pairs(headers), variables: pairs(variables), bulk: bulk,
                  attachments: attachments(attachments) }.reject { |_, part| part.nil? || part == [] }
      body = { key: given(key), keyRule: rule(first_wins), content: content.empty? ? nil : content, template: template,
               audience: audience(to), sendTime: at && at.to_time.getutc.iso8601(9), pool: pool, priority: priority,
               policies: policies, validateOnly: validate_only }
      request("POST", "/v1/messages", body.compact, key: "")
    end

    # Returns a message with the state of each recipient.
    def message(key) = request("GET", "/v1/messages/#{path(given(key))}")["message"]

    # Cancels what of a message has not been sent. After the answer nothing of it is handed to a relay.
    def cancel(key) = request("POST", "/v1/messages/#{path(given(key))}/cancel", {})

    # Creates a schedule, or makes the existing one equal to this. Its form is `ScheduleBody` in openapi.json.
    def put_schedule(name, schedule)
      request("PUT", "/v1/schedules/#{path(name)}", schedule.to_h.merge("name" => name))["schedule"]
    end

    # Opens a run of a schedule now, once for this key, to its own recipients or to these.
    def trigger(name, key, recipients: nil, first_wins: false)
      body = { requestId: given(key), keyRule: rule(first_wins), audience: recipients && audience(recipients) }
      request("POST", "/v1/schedules/#{path(name)}/trigger", body.compact, key: "")
    end

    # Returns the events after a cursor, and waits up to `wait` seconds for the first one. `after` is the cursor of an
    # earlier answer, `latest`, or empty for the oldest that is kept.
    def events(after = "", types: [], wait: 30, single: nil)
      # A retry would begin later than the attempt that was lost.
      after = events(after, types: types, wait: 0, single: single)["cursor"] if after == "latest" && wait.positive?
      query = { after: after, types: types, wait: "#{wait}s", single: single }
      request("GET", "/v1/events", query: query, wait: wait)
    end

    # Makes any call of the API, with retries, and returns its JSON; an array, if the answer is JSON lines.
    #
    # key: idempotency key of a write. nil: one is drawn and kept over the retries. Empty: the body has it, or the call
    # takes none; then it is not repeated if it may have happened.
    # wait: seconds that the node may wait before it answers.
    def request(verb, path, body = nil, query: {}, key: nil, wait: 0)
      query = { tenant_field(verb, path) => @tenant }.merge(query.transform_keys(&:to_s))
      query = query.reject { |name, value| name.nil? || value.nil? || value == "" || value == [] }
      mark = path.include?("?") ? "&" : "?"
      target = path + (query.empty? ? "" : mark + URI.encode_www_form(query))
      key ||= SecureRandom.uuid unless verb == "GET"
      head, data = headers(key, body), body && JSON.generate(body)
      once = verb == "POST" && key.to_s.empty? && (body.to_h.keys.map(&:to_s) & %w[key requestId]).empty?
      ends = now + @total + wait
      unknown, attempt = false, 0
      begin
        node = @nodes[@node]
        call = VERBS.fetch(verb).new(node.path.chomp("/") + target, head)
        call.body = data
        # A last attempt that is cut would leave open what an earlier one has told.
        attempt(node, call, [@timeout + wait, [ends - now, 1].max].min)
      rescue Error => e
        # An earlier attempt has deleted it.
        return {} if unknown && verb == "DELETE" && e.status == 404

        e.unknown = unknown ||= e.may_have_taken_effect? && verb != "GET"
        # A node says when to ask it again. Another one may answer at once.
        again = ((attempt + 1) % @nodes.size).zero? ? e.retry_after : 0
        pause = [again, rand(0.5..1.0) * [2.0, 0.1 * 2**attempt].min].max
        raise if !e.retried? || (unknown && once) || now + pause >= ends

        @node = (@node + 1) % @nodes.size
        sleep(pause)
        attempt += 1
        retry
      end
    end

    private

    # Returns a variable of the environment; nil if it is empty, as in a file of variables where nothing is set.
    def env(name) = ENV[name].to_s.empty? ? nil : ENV[name]

    def attempt(node, call, limit)
      http = Net::HTTP.new(node.hostname, node.port, nil)
      http.open_timeout = http.read_timeout = http.write_timeout = http.ssl_timeout = limit
      http.max_retries = 0
      http.use_ssl = node.scheme == "https"
      http.ca_file = @ca_file if @ca_file
      connected = false
      # The timeouts of Net::HTTP are for each read.
      answer = Timeout.timeout(limit, nil, "the answer did not end in time") do
        http.start do
          connected = true
          http.request(call)
        end
      end
      if answer.code == "200"
        return JSON.parse(answer.body.to_s) unless answer["Content-Type"].to_s.start_with?("application/jsonl")

        lines = answer.body.to_s.lines.map { |line| JSON.parse(line) }
        failed = lines.last&.fetch("error", nil)
        return lines unless failed

        raise refusal(failed["status"].to_i, failed.to_json, "")
      end

      raise refusal(answer.code.to_i, answer.body.to_s, answer["Retry-After"].to_s)
    rescue SystemCallError, SocketError, IOError, Timeout::Error, OpenSSL::SSL::SSLError, Net::ProtocolError,
           Net::HTTPBadResponse, Net::HTTPHeaderSyntaxError, JSON::ParserError => e
      certificate = e.is_a?(OpenSSL::SSL::SSLError) && e.message.include?("certificate verify failed")
      raise Error.new("no answer from #{node.host}: #{e.message}", retried: !certificate, unknown: connected)
    end

    def refusal(status, body, retry_after)
      problem = problem(body)
      # Of a node, only 504 leaves the outcome open; a proxy may answer with others.
      Error.new(problem["detail"] || "the answer says no more", status: status, reason: problem["reason"].to_s,
                fields: problem["fields"] || [], index: problem["index"].to_s, retry_after: retry_after.to_i,
                retried: [429, 502, 503, 504].include?(status) || retry_after.to_i.positive?,
                unknown: status >= 500 && ![501, 503].include?(status))
    end

    def problem(body)
      problem = JSON.parse(body)
      problem.is_a?(Hash) ? problem : {}
    rescue JSON::ParserError
      {}
    end

    def headers(key, body)
      { "Accept" => "application/json", "Content-Type" => body && "application/json",
        "Authorization" => @token.to_s.empty? ? nil : "Bearer #{@token}",
        "Idempotency-Key" => key.to_s.empty? ? nil : key }.compact
    end

    def tenant_field(verb, path)
      return if WITHOUT_TENANT.match?(path)

      WITH_SCHEDULE.match?("#{verb} #{path}") ? "schedule.tenant" : "tenant"
    end

    def given(key)
      raise ArgumentError, "the key is empty: give each message and each trigger a key of its own" if key.to_s.empty?

      key.to_s
    end

    def path(part) = URI.encode_www_form_component(part).gsub("+", "%20")

    def rule(first_wins) = first_wins ? "KEY_RULE_FIRST_WINS" : nil

    def pairs(values)
      missing = values.to_h.key(nil)
      raise ArgumentError, "#{missing} has no value: give a text, which may be empty" if missing

      values&.map { |name, value| { name: name.to_s, value: value.to_s } }
    end

    def attachments(given)
      given.map do |name, data, type, content_id|
        { name: name, contentType: type, data: [data].pack("m0"), contentId: content_id }.compact
      end
    end

    # Columns are in order of their names: the same recipients are always the same request.
    def audience(to)
      given = to.is_a?(Hash) || !to.respond_to?(:map) ? [to] : to
      people = given.map { |one| one.is_a?(Hash) ? one.transform_keys(&:to_s) : { "address" => one.to_s } }
      columns = people.flat_map(&:keys).uniq.sort - ["address"]
      recipients = people.map do |one|
        missing = ["address", *columns].find { |name| one[name].nil? }
        raise ArgumentError, "the recipient #{one} has no #{missing}: give each a text, which may be empty" if missing

        { address: one["address"].to_s, values: one.values_at(*columns).map(&:to_s) }
      end
      { columns: columns, recipients: recipients }
    end

    def now = Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
end
