# frozen_string_literal: true

require "reveille"

module Reveille
  # Delivery method of Action Mailer:
  #
  #   ActionMailer::Base.add_delivery_method :reveille, Reveille::Delivery
  #   config.action_mailer.delivery_method = :reveille   # reveille_settings: the arguments of Reveille::Client
  #
  # The key of an email is its header `X-Reveille-Key`, else its `Message-ID`. Mail draws a new Message-ID for each
  # email, so a job that is retried needs the header: `headers["X-Reveille-Key"] = "welcome-#{user.id}"`.
  #
  # With `first_wins: true` in the settings, another email under a key that is known sends nothing, instead of being
  # refused: for jobs that render the email anew when they are repeated.
  #
  # Each recipient in To, Cc and Bcc gets an email of its own: `To` has its own address, and `Cc` those in Cc.
  class Delivery
    # Mail has them as attributes; `Date` and `Message-ID` are Reveille's own.
    NOT_PASSED = %w[x-reveille-key message-id date from to cc bcc reply-to subject mime-version].freeze
    private_constant :NOT_PASSED

    attr_accessor :settings

    def initialize(settings)
      @settings = settings
      @client = Client.new(**settings.except(:first_wins))
    end

    def deliver!(mail)
      bodies = bodies(mail)
      raise ArgumentError, "Reveille sends text and HTML, and nothing else: #{mail.mime_type}" if bodies.empty?

      key = mail["X-Reveille-Key"]&.value || mail.message_id || Mail::MessageIdField.new.message_id
      @client.send(key, to: mail.destinations, cc: mail["Cc"]&.addrs&.map(&:decoded), sender: mail["From"]&.decoded,
                   reply_to: mail["Reply-To"]&.decoded, subject: Reveille.literal(mail.subject.to_s),
                   headers: headers(mail), attachments: mail.attachments.map { |file| attachment(file) },
                   first_wins: settings[:first_wins], **bodies)
    end

    private

    def bodies(mail)
      parts = { text: mail.text_part, html: mail.html_part } if mail.multipart?
      parts ||= { nil => { text: mail }, "text/plain" => { text: mail }, "text/html" => { html: mail } }[mail.mime_type]
      parts.to_h.compact.transform_values { |part| Reveille.literal(part.decoded) }
    end

    def attachment(file)
      inline = file.inline? ? file.cid : nil
      [file.filename, file.decoded, file.mime_type, inline].compact
    end

    def headers(mail)
      fields = mail.header_fields.reject { |field| passed_otherwise?(field.name.downcase) }
      fields.to_h { |field| [field.name, Reveille.literal(field.decoded)] } unless fields.empty?
    end

    def passed_otherwise?(name) = NOT_PASSED.include?(name) || name.start_with?("content-")
  end
end
