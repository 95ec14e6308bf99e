'use strict';
// Transport of Nodemailer: `nodemailer.createTransport(reveilleTransport({ url, token }))`.
//
// The key of an email is its header `X-Reveille-Key`, else its `messageId`. Nodemailer draws a new Message-ID for each
// call of `sendMail`, so a job that is retried needs the header.
//
// With `firstWins: true` another email under a key that is known sends nothing, instead of being refused: for jobs that
// render the email anew when they are repeated.
//
// Each recipient in To, Cc and Bcc gets an email of its own: `To` has its own address, and `Cc` those in Cc.

const { Client, literal } = require('./reveille.js');

// Fields of Nodemailer's email that Reveille has no form for.
const UNSUPPORTED = ['alternatives', 'icalEvent', 'raw', 'amp', 'watchHtml', 'list', 'dkim', 'sender', 'priority'];

function reveilleTransport({ firstWins, ...options } = {}) {
  const client = options.client ?? new Client(options);
  return {
    name: 'reveille',
    version: '0.1.0',
    send(mail, done) {
      deliver(client, mail, firstWins).then((info) => done(null, info), done);
    },
  };
}

async function deliver(client, mail, firstWins) {
  const { data } = await new Promise((resolve, reject) => {
    mail.normalize((error, normalized) => (error ? reject(error) : resolve({ data: normalized })));
  });
  const unsupported = UNSUPPORTED.find((field) => [data[field]].flat().some(Boolean));
  if (unsupported) throw new TypeError(`Reveille sends text, HTML and files, and no '${unsupported}'`);
  const { 'x-reveille-key': key, ...headers } = headersOf(data);
  const { from: [sender, ...others] = [], 'reply-to': [replyTo, ...more] = [], cc } = mail.message.getAddresses();
  if (others.length || more.length) throw new TypeError('Reveille takes one address in From, and one in Reply-To');
  const [{ from, to }, messageId] = [mail.message.getEnvelope(), mail.message.messageId()];
  const sent = await client.send(key ?? messageId.replace(/^<|>$/g, ''), {
    to,
    firstWins,
    cc: cc?.map(mailbox),
    sender: mailbox(sender),
    replyTo: mailbox(replyTo),
    subject: literal(data.subject ?? ''),
    text: data.text === undefined ? undefined : literal(String(data.text)),
    html: data.html === undefined ? undefined : literal(String(data.html)),
    headers: Object.keys(headers).length ? headers : undefined,
    attachments: data.attachments?.map(file),
  });
  return { envelope: { from, to }, messageId, accepted: to, rejected: [], response: sent.message.run.run, sent };
}

function headersOf({ headers = {}, inReplyTo, references }) {
  const own = Array.isArray(headers) ? headers.map(({ key, value }) => [key, value]) : Object.entries(headers);
  const threads = [['In-Reply-To', inReplyTo], ['References', references && [references].flat().join(' ')]];
  const given = [...own, ...threads].filter(([, value]) => value != null && value !== false);
  const names = new Set(given.map(([name]) => name.toLowerCase()));
  if (names.size < given.length) throw new TypeError('a header comes twice: give each one value');
  return Object.fromEntries(given.map(([name, value]) => {
    const text = String(value.value ?? value);
    if (Array.isArray(value.value ?? value)) throw new TypeError(`the header ${name} has several values: give it one`);
    return name.toLowerCase() === 'x-reveille-key' ? ['x-reveille-key', text] : [name, literal(text)];
  }));
}

// Nodemailer has read the content of each: bytes are in base64.
function file({ filename, content, contentType, cid, encoding }) {
  if (typeof content !== 'string') throw new TypeError(`Reveille sends files, and the attachment ${filename} is none`);
  const isMessage = contentType.startsWith('message/');
  return {
    name: filename,
    data: Buffer.from(content, encoding === 'base64' ? 'base64' : 'utf8'),
    // Such a file may not be in base64 (RFC 2046).
    type: isMessage ? 'application/octet-stream' : contentType,
    contentId: cid,
  };
}

function mailbox(given) {
  return given?.name ? `${JSON.stringify(given.name)} <${given.address}>` : given?.address;
}

module.exports = { reveilleTransport };
