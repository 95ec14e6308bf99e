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
    BODIES = { nil => :text, "text/plain" => :text, "text/html" => :html }.freeze
    private_constant :NOT_PASSED, :BODIES

    attr_accessor :settings

    def initialize(settings)
      @settings = settings
      @client = Client.new(**settings.except(:first_wins))
    end

    def deliver!(mail)
      several = %w[From Reply-To].find { |name| mail[name] && mail[name].addrs.size > 1 }
      raise ArgumentError, "Reveille takes one address in #{several}" if several

      bodies, files = contents(mail)
      key = mail["X-Reveille-Key"]&.value || mail.message_id || Mail::MessageIdField.new.message_id
      @client.send(key, to: mail.destinations, cc: mail["Cc"]&.addrs&.map(&:decoded), sender: mail["From"]&.decoded,
                   reply_to: mail["Reply-To"]&.decoded, subject: Reveille.literal(mail.subject.to_s),
                   headers: headers(mail), attachments: files, first_wins: settings[:first_wins], **bodies)
    end

    private

    # Returns the texts by their kind, and the files. `Mail#attachments` is no help: in the place of an attached email
    # it has the files in it.
    def contents(mail)
      bodies, files = {}, []
      [mail, *mail.all_parts].reject(&:multipart?).each do |part|
        kind = BODIES[part.mime_type]
        if part.is_a?(Mail::Part) && (part.filename || part.mime_type.to_s.start_with?("message/"))
          files << attachment(part)
        elsif kind && !bodies.key?(kind)
          bodies[kind] = Reveille.literal(part.decoded)
        else
          refuse(part)
        end
      end
      bodies.empty? ? refuse(mail) : [bodies, files]
    end

    def refuse(part)
      raise ArgumentError, "Reveille sends a text, HTML and named files, and no other part: #{part.mime_type}"
    end

    def attachment(file)
      type = file.mime_type || "application/octet-stream"
      type += "; charset=#{file.charset}" if file.charset
      # Such a file may not be in base64 (RFC 2046).
      type = "application/octet-stream" if type.start_with?("message/")
      [file.filename || "attachment", bytes(file.body), type, (file.cid if file.inline?)]
    end

    # `Part#decoded` makes UTF-8 of each text, and Mail's decoder of 7bit changes line ends even in bytes that are no
    # ASCII, such as UTF-16 with its mark. Those are the file itself, as base64 and quoted-printable are ASCII.
    def bytes(body)
      raw = body.raw_source
      raw.ascii_only? || (raw.encoding != Encoding::BINARY && raw.valid_encoding?) ? body.decoded : raw
    end

    def headers(mail)
      fields = mail.header_fields.reject { |field| passed_otherwise?(field.name.downcase) }
      several = fields.group_by { |field| field.name.downcase }.values.find { |same| same.size > 1 }
      raise ArgumentError, "Reveille takes one value of the header #{several[0].name}" if several

      fields.to_h { |field| [field.name, Reveille.literal(field.decoded)] } unless fields.empty?
    end

    def passed_otherwise?(name) = NOT_PASSED.include?(name) || name.start_with?("content-")
  end
end
