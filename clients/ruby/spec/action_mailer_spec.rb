# frozen_string_literal: true

require "action_mailer"
require "reveille/action_mailer"
require_relative "mailbox"

ActionMailer::Base.add_delivery_method :reveille, Reveille::Delivery
ActionMailer::Base.delivery_method = :reveille
ActionMailer::Base.raise_delivery_errors = true

class Welcome < ActionMailer::Base
  default from: "News <news@example.com>", reply_to: "Help <help@example.com>"

  def both(to, **headers)
    mail(to: to, subject: "Grüße, {{ name }}", **headers) do |format|
      format.text { render plain: "Hello {{ you }}." }
      format.html { render html: "<b>Hello {{ you }}.</b>".html_safe }
    end
  end

  def html(to)
    mail(to: to, subject: "Hello", content_type: "text/html", body: "<b>Hello.</b>")
  end

  def with_file(to)
    attachments["Rechnung für Zoë.pdf"] = "%PDF-1.7\n\x00\xFF".b
    attachments.inline["logo.png"] = "\x89PNG".b
    image = %(<img src="#{attachments["logo.png"].url}">).html_safe
    mail(to: to, subject: "Hello") { |format| format.html { render html: image } }
  end

  def with_texts(to, texts)
    texts.each { |name, text| attachments[name] = text }
    mail(to: to, subject: "Hello") { |format| format.text { render plain: "Hello." } }
  end

  def with_email(to)
    inner = Mail.new(subject: "Inner", body: "Inner.")
    inner.add_file(filename: "inner.pdf", content: "%PDF-1.7\n")
    attachments["mail.eml"] = inner.encoded
    mail(to: to, subject: "Hello") { |format| format.text { render plain: "Outer." } }
  end

  def with_calendar(to)
    mail(to: to, subject: "Hello") do |format|
      format.text { render plain: "Hello." }
      format.ics { render plain: "BEGIN:VCALENDAR" }
    end
  end
end

RSpec.describe Reveille::Delivery do
  include Mailbox

  it "delivers texts as they are, with the key of the job" do
    headers = { "X-Reveille-Key" => "rb-mailer", "X-Team" => "us" }
    2.times { Welcome.both("Ann <rb-mailer@example.com>", **headers).deliver_now }
    found = emails("rb-mailer@example.com")
    expect(found.size).to eq(1)
    expect(found[0]["subject"]).to eq("Grüße, {{ name }}")
    expect(source(found[0])).to include("Hello {{ you }}.", "<b>Hello {{ you }}.</b>", "X-Team: us",
                                        "From: News <news@example.com>", "help@example.com")
    expect(source(found[0])).not_to include("rb-mailer\r\n")
  end

  it "refuses a job that renders anew unless the first email wins" do
    deliver = lambda do |body, settings|
      email = Mail.new(from: "news@example.com", to: "rb-anew@example.com", subject: "Hello", body: body)
      email["X-Reveille-Key"] = "rb-anew"
      described_class.new(settings).deliver!(email)
    end
    deliver.call("At 9:00.", {})
    expect { deliver.call("At 9:01.", {}) }.to raise_error(Reveille::Error, /REQUEST_ID_REUSED/)
    expect(deliver.call("At 9:01.", { first_wins: true })["replayed"]).to be(true)
    expect(source(emails("rb-anew@example.com")[0])).to include("At 9:00.")
  end

  it "takes the Message-ID as key, and sends a copy to each recipient" do
    copies = { cc: "Zoë <rb-copy-cc@example.com>", bcc: "rb-copy-bcc@example.com" }
    email = Welcome.both(%w[rb-copy-to@example.com], **copies).message
    2.times { email.deliver }
    copied = emails("rb-copy-", 3).to_h { |one| [one["recipient"], Mail.new(source(one))] }
    expect(copied.size).to eq(3)
    copied.each do |recipient, copy|
      expect([copy.to, copy["Cc"].decoded.delete('"')]).to eq([[recipient], "Zoë <rb-copy-cc@example.com>"])
    end
  end

  it "delivers HTML alone" do
    Welcome.html("rb-html@example.com").deliver_now
    expect(source(emails("rb-html@example.com")[0])).to include("<b>Hello.</b>", "text/html")
  end

  it "passes attachments" do
    Welcome.with_file("rb-file@example.com").deliver_now
    files = Mail.new(source(emails("rb-file@example.com")[0])).attachments
    expect(files.map(&:filename)).to contain_exactly("Rechnung für Zoë.pdf", "logo.png")
    expect(files["Rechnung für Zoë.pdf"].decoded).to eq("%PDF-1.7\n\x00\xFF".b)
    expect(files["logo.png"]).to be_inline
  end

  it "leaves the bytes of an attached text as they are" do
    wide, latin = "\uFEFFa\r\n".encode("UTF-16LE").b, "n\xE4\r\nb\n".b
    type = "text/plain; charset=UTF-16LE"
    texts = { "wide.txt" => { mime_type: type, content: wide },
              "coded.txt" => { mime_type: type, encoding: "base64", content: [wide].pack("m0") },
              "latin.csv" => { mime_type: "text/csv; charset=ISO-8859-1", content: latin } }
    Welcome.with_texts("rb-texts@example.com", texts).deliver_now
    found = Mail.new(source(emails("rb-texts@example.com")[0])).attachments
    expect(found.map { |file| [file.filename, file.charset, file.body.decoded.b] }).to contain_exactly(
      ["wide.txt", "UTF-16LE", wide], ["coded.txt", "UTF-16LE", wide], ["latin.csv", "ISO-8859-1", latin]
    )
  end

  it "passes an attached email whole, as a file" do
    Welcome.with_email("rb-email@example.com").deliver_now
    file, *others = Mail.new(source(emails("rb-email@example.com")[0])).attachments
    expect([file.filename, file.mime_type, others]).to eq(["mail.eml", "application/octet-stream", []])
    expect(file.decoded).to include("Subject: Inner", "inner.pdf")
  end

  it "refuses a second address in From or Reply-To, and a second value of a header" do
    two = %w[a@example.com b@example.com]
    [{ from: two }, { reply_to: two }, {}].each do |headers|
      email = Welcome.both("rb-two@example.com", **headers).message
      %w[us them].each { |team| email.header["X-Team"] = team } if headers.empty?
      expect { email.deliver }.to raise_error(ArgumentError, /takes one/)
    end
  end

  it "refuses a part that is neither text, HTML nor a file" do
    expect { Welcome.with_calendar("rb-ics@example.com").deliver_now }.to raise_error(ArgumentError, %r{text/calendar})
  end
end
