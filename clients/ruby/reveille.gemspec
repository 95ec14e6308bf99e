# frozen_string_literal: true

Gem::Specification.new do |spec|
  spec.name = "reveille"
  spec.version = "0.1.0"
  spec.summary = "Client of Reveille's HTTP API: emails that are sent once"
  spec.authors = ["The Reveille authors"]
  spec.licenses = ["MIT", "Apache-2.0"]
  spec.required_ruby_version = ">= 3.0"
  spec.files = Dir["lib/**/*.rb", "README.md"]
end
