'use strict';
// Client of Reveille's HTTP API. It needs Node.js 18 and nothing else.

const { randomUUID } = require('node:crypto');
const { readFileSync } = require('node:fs');
const http = require('node:http');
const https = require('node:https');
const { setTimeout: sleep } = require('node:timers/promises');

const RETRIED = new Set([429, 502, 503, 504]);
// Calls that concern no tenant. Any other call gets the tenant of the client: the node refuses it where it is no field.
const WITHOUT_TENANT =
  /^\/v1\/(audience-parts|audit-records|backups|clock|cluster|openapi|pools|relays|tenants|tokens)\b/;
// Writes whose tenant is that of the schedule in their body.
const WITH_SCHEDULE = /^(POST|PUT|PATCH) \/v1\/(schedules(\/[^/]+)?|campaigns|test-emails)(\?|$)/;

/** A call that failed, after all retries. */
class ReveilleError extends Error {
  constructor(detail, options = {}) {
    const { status = 0, reason = '', fields = [], index = '', retryAfter = 0, mayHaveTakenEffect, cause } = options;
    const head = [status || '', reason].filter(Boolean).join(' ');
    super(head ? `${head}: ${detail}` : detail, { cause });
    this.name = 'ReveilleError';
    Object.assign(this, { status, reason, fields, index, retryAfter });
    this.mayHaveTakenEffect = Boolean(mayHaveTakenEffect);
  }
}

/** Returns a template that renders as this text: `{{`, `{%` and `{#` in it have no meaning. */
function literal(text) {
  return text.replace(/\{(?=[{%#])/g, '{{ "{" }}');
}

/**
 * Calls one cluster.
 *
 * Every call is repeated with the same key after 429, 502, 503, 504, any answer with `Retry-After` and a broken
 * connection, until `total` milliseconds have passed. So a call that returned has happened once, and a call that threw
 * says whether it may have happened.
 */
class Client {
  #urls; #node = 0; #token; #agents; #tenant; #timeout; #total;

  constructor({ url, token, caFile, tenant, timeout = 20_000, total = 60_000 } = {}) {
    const urls = url ?? (process.env.REVEILLE_URL || 'http://127.0.0.1:7600');
    this.#urls = urls.split(',').map((one) => new URL(one.trim()));
    const wrong = this.#urls.find(({ protocol }) => !['http:', 'https:'].includes(protocol));
    if (wrong) throw new TypeError(`the URL ${wrong} is not http://HOST:PORT or https://HOST:PORT`);
    this.#token = token ?? process.env.REVEILLE_TOKEN;
    caFile ??= process.env.REVEILLE_CA_FILE;
    const ca = caFile ? readFileSync(caFile) : undefined;
    this.#agents = { 'https:': new https.Agent({ keepAlive: true, ca }), 'http:': new http.Agent({ keepAlive: true }) };
    this.#tenant = tenant;
    this.#timeout = timeout;
    this.#total = total;
  }

  async send(key, email) {
    const { to, sender, subject, text, html, replyTo, cc, headers, variables, bulk, attachments, ...rest } = email;
    const { template, at, firstWins, pool, priority, policies, validateOnly, ...unknown } = rest;
    refuseUnknown(unknown);
    const parts = {
      sender, subject, text, html, replyTo, cc, bulk, attachments: attachments?.map(attachment),
      headers: pairs(headers), variables: pairs(variables),
    };
    const isEmpty = Object.values(parts).every((part) => part === undefined || (Array.isArray(part) && !part.length));
    const content = isEmpty ? undefined : parts;
    const body = {
      key: given(key), keyRule: rule(firstWins), content, template, audience: audience(to),
      sendTime: at?.toISOString(), pool, priority, policies, validateOnly,
    };
    return this.request('POST', '/v1/messages', body, { key: '' });
  }

  async message(key) {
    return (await this.request('GET', `/v1/messages/${segment(given(key))}`)).message;
  }

  async cancel(key) {
    return this.request('POST', `/v1/messages/${segment(given(key))}/cancel`, {});
  }

  async putSchedule(name, schedule) {
    return (await this.request('PUT', `/v1/schedules/${segment(name)}`, { ...schedule, name })).schedule;
  }

  async trigger(name, key, { recipients, firstWins, ...unknown } = {}) {
    refuseUnknown(unknown);
    const list = recipients === undefined ? undefined : audience(recipients);
    const body = { requestId: given(key), keyRule: rule(firstWins), audience: list };
    return this.request('POST', `/v1/schedules/${segment(name)}/trigger`, body, { key: '' });
  }

  async events(after = '', { types = [], wait = 30_000, single } = {}) {
    // A retry would begin later than the attempt that was lost.
    if (after === 'latest' && wait) after = (await this.events(after, { types, wait: 0, single })).cursor;
    const query = { after, types, wait: `${wait / 1000}s`, single };
    return this.request('GET', '/v1/events', undefined, { query, wait });
  }

  async request(method, path, body, { query = {}, key, wait = 0 } = {}) {
    const asked = new URLSearchParams();
    for (const [name, value] of Object.entries({ ...this.#scope(method, path), ...query })) {
      for (const one of [value].flat()) if (one != null && one !== '') asked.append(name, one);
    }
    const target = path + (`${asked}` && `${path.includes('?') ? '&' : '?'}${asked}`);
    const headers = { accept: 'application/json' };
    if (this.#token) headers.authorization = `Bearer ${this.#token}`;
    key ??= method === 'GET' ? '' : randomUUID();
    if (key) headers['idempotency-key'] = key;
    const data = body === undefined ? undefined : Buffer.from(JSON.stringify(body));
    if (data) headers['content-type'] = 'application/json';
    if (method !== 'GET') headers['content-length'] = data?.length ?? 0;
    const isOnce = method === 'POST' && !key && body?.key === undefined && body?.requestId === undefined;
    const ends = performance.now() + this.#total + wait;
    let unknown = false;
    for (let attempt = 0; ; attempt += 1) {
      let failed;
      try {
        // A last attempt that is cut would leave open what an earlier one has told.
        const limit = Math.min(this.#timeout + wait, Math.max(ends - performance.now(), 1000));
        const answer = await this.#attempt({ method, path: target, headers }, data, limit);
        if (answer.status === 200) return answer.json;
        failed = refusal(answer);
      } catch (error) {
        if (!(error instanceof ReveilleError)) throw error;
        failed = error;
      }
      // An earlier attempt has deleted it.
      if (unknown && method === 'DELETE' && failed.status === 404) return {};
      unknown ||= failed.mayHaveTakenEffect && method !== 'GET';
      failed.mayHaveTakenEffect = unknown;
      // A node says when to ask it again. Another one may answer at once.
      const again = (attempt + 1) % this.#urls.length === 0 ? failed.retryAfter : 0;
      const pause = Math.max(again, (0.5 + Math.random() / 2) * Math.min(2000, 100 * 2 ** attempt));
      const isAsked = RETRIED.has(failed.status) || failed.retryAfter > 0;
      const isRetried = failed.status === 0 ? !isCertificate(failed.cause) : isAsked;
      if (!isRetried || (unknown && isOnce) || performance.now() + pause >= ends) throw failed;
      this.#node = (this.#node + 1) % this.#urls.length;
      await sleep(pause);
    }
  }

  #attempt(asked, data, limit) {
    const { hostname, port, protocol, pathname } = this.#urls[this.#node];
    const options = { ...asked, hostname: hostname.replace(/^\[|\]$/g, ''), port, agent: this.#agents[protocol] };
    options.path = pathname.replace(/\/$/, '') + asked.path;
    return new Promise((resolve, reject) => {
      let isConnected = false;
      const fail = (cause) => {
        const detail = `no answer from ${hostname}: ${cause.message || cause.code}`;
        reject(new ReveilleError(detail, { mayHaveTakenEffect: isConnected, cause }));
      };
      const call = (protocol === 'https:' ? https : http).request({
        ...options, signal: AbortSignal.timeout(Math.ceil(limit)),
      });
      call.on('error', fail);
      call.on('socket', (socket) => {
        isConnected = !socket.connecting;
        const ready = protocol === 'https:' ? 'secureConnect' : 'connect';
        if (!isConnected) socket.once(ready, () => { isConnected = true; });
      });
      call.on('response', (answer) => {
        const chunks = [];
        answer.on('data', (chunk) => chunks.push(chunk));
        answer.on('error', fail);
        answer.on('end', () => {
          const [status, text] = [answer.statusCode, Buffer.concat(chunks).toString()];
          const isLines = answer.headers['content-type']?.startsWith('application/jsonl');
          const json = parsed(isLines ? `[${text.trim().split('\n').join()}]` : text);
          const failed = isLines && json?.at(-1)?.error;
          if (failed) return resolve({ status: failed.status, json: failed });
          if (status === 200 && json === undefined) fail(new Error('it is not JSON'));
          resolve({ status, json, retryAfter: answer.headers['retry-after'] });
        });
      });
      call.end(data);
    });
  }

  #scope(method, path) {
    if (WITHOUT_TENANT.test(path)) return {};
    return { [WITH_SCHEDULE.test(`${method} ${path}`) ? 'schedule.tenant' : 'tenant']: this.#tenant };
  }
}

function refusal({ status, json, retryAfter }) {
  return new ReveilleError(json?.detail ?? http.STATUS_CODES[status] ?? 'the answer says no more', {
    status,
    reason: json?.reason,
    fields: json?.fields,
    index: json?.index,
    retryAfter: 1000 * (Number.parseInt(retryAfter, 10) || 0),
    // Of a node, only 504 leaves the outcome open; a proxy may answer with others.
    mayHaveTakenEffect: status >= 500 && status !== 501 && status !== 503,
  });
}

function isCertificate(cause) {
  return /CERT|ERR_TLS|UNABLE_TO_/.test(cause?.code ?? '');
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function given(key) {
  if (typeof key !== 'string' || key === '') {
    throw new TypeError('the key is empty: give each message and each trigger a key of its own');
  }
  return key;
}

function refuseUnknown(options) {
  const [name] = Object.keys(options);
  if (name !== undefined) throw new TypeError(`there is no option '${name}'`);
}

const segment = encodeURIComponent;
const rule = (firstWins) => (firstWins ? 'KEY_RULE_FIRST_WINS' : undefined);
const attachment = ({ name, data, type, contentId }) => (
  { name, contentType: type, data: Buffer.from(data).toString('base64'), contentId }
);
const pairs = (values) => values && Object.entries(values).map(([name, value]) => {
  if (value == null) throw new TypeError(`${name} has no value: give a text, which may be empty`);
  return { name, value: String(value) };
});

// Columns are in order of their names: the same recipients are always the same request.
function audience(to) {
  const people = [to].flat().map((one) => (typeof one === 'string' ? { address: one } : one));
  const columns = [...new Set(people.flatMap(Object.keys))].filter((name) => name !== 'address').sort();
  const recipients = people.map((one) => {
    const missing = ['address', ...columns].find((name) => one[name] == null);
    if (missing !== undefined) throw new TypeError(`a recipient has no ${missing}: give each a text, which may be empty`);
    return { address: one.address, values: columns.map((column) => String(one[column])) };
  });
  return { columns, recipients };
}

module.exports = { Client, ReveilleError, literal };
