# frozen_string_literal: true

require "fileutils"
require "json"
require "net/http"
require "reveille"
require "tmpdir"

# A node of Reveille for tests, with a test clock. It sends to a mailbox instead of a relay. Copy this file, and set
# REVEILLE to the program if it is not in PATH.
class ReveilleNode
  REVEILLE = ENV.fetch("REVEILLE", "reveille")

  attr_reader :client

  def initialize
    @folder = Dir.mktmpdir("reveille")
    @log = File.join(@folder, "log")
    @pid = Process.spawn(REVEILLE, "dev", "--test-clock", "--free-ports", "--data-dir", File.join(@folder, "data"),
                         in: File::NULL, %i[out err] => @log)
    @url = "http://#{address('admin')}"
    @mailbox = address("mailbox")
    @client = Reveille::Client.new(url: @url, token: "")
  end

  # Returns the time of the test clock.
  def now = Time.iso8601(@client.request("GET", "/v1/clock")["currentTime"])

  # Moves the clock on, by `20h` or `90s`, and waits until what is due by then is sent.
  def advance(duration)
    system({ "REVEILLE_URL" => @url }, REVEILLE, "clock", "advance", duration, out: File::NULL, exception: true)
  end

  # Returns the emails that were sent, oldest first. `count`: waits for so many, up to ten seconds.
  def emails(recipient = "", count: 0)
    found = []
    200.times do
      found = JSON.parse(Net::HTTP.get(URI("#{@mailbox}/emails.json?per_page=1000&recipient=#{recipient}"))).reverse
      break if found.size >= count

      sleep 0.05
    end
    found
  end

  def stop
    Process.kill("TERM", @pid)
    Process.wait(@pid)
    FileUtils.rm_rf(@folder)
  end

  private

  def address(what)
    300.times do
      found = File.read(@log)[/^#{what} +(\S+).*\n/, 1]
      return found if found

      sleep 0.1
    end
    raise File.read(@log)
  end
end

RSpec.configure do |config|
  config.add_setting :reveille_node
  config.before(:suite) { config.reveille_node = ReveilleNode.new }
  config.after(:suite) { config.reveille_node&.stop }
end
