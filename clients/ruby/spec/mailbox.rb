# frozen_string_literal: true

require "json"
require "net/http"

# Reads the mailbox of `reveille dev`.
module Mailbox
  MAILBOX = ENV.fetch("REVEILLE_MAILBOX")

  # Returns the emails to an address, once there are so many.
  def emails(address, count = 1)
    found = []
    400.times do
      found = JSON.parse(Net::HTTP.get(URI("#{MAILBOX}/emails.json?recipient=#{address}")))
      break if found.size >= count

      sleep 0.05
    end
    found
  end

  def source(email) = Net::HTTP.get(URI("#{MAILBOX}/emails/#{email['number']}/source"))
end
