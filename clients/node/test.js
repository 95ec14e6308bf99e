'use strict';
// Tests of the client against `reveille dev`. clients/test starts it, and the stub of a broken network.

const assert = require('node:assert/strict');
const { describe, it } = require('node:test');
const { setTimeout: sleep } = require('node:timers/promises');
const nodemailer = require('nodemailer');
const { Client, ReveilleError, literal } = require('./reveille.js');
const { reveilleTransport } = require('./nodemailer.js');

const { REVEILLE_STUB: stub, REVEILLE_MAILBOX: mailbox } = process.env;
const sender = 'News <news@example.com>';
const client = new Client();

/** Returns the emails to an address, once there are so many. */
async function emails(address, count = 1) {
  for (let tries = 0; ; tries += 1) {
    const found = await (await fetch(`${mailbox}/emails.json?recipient=${address}`)).json();
    if (found.length >= count || tries === 400) return found;
    await sleep(50);
  }
}

async function source(email) {
  return (await fetch(`${mailbox}/emails/${email.number}/source`)).text();
}

function send(key, { text = 'Hello.', by = client, to = `${key}@example.com`, ...options } = {}) {
  return by.send(key, { to, sender, subject: 'Hello', text, ...options });
}

async function refusal(promise) {
  const error = await promise.then(() => assert.fail('it was not refused'), (refused) => refused);
  assert.ok(error instanceof ReveilleError, error);
  return error;
}

function schedule(name) {
  return {
    timing: { daily: { hour: 9 } },
    zone: 'Europe/Berlin',
    policies: { minGap: '0s', overlap: 'OVERLAP_ALLOW' },
    content: { sender, subject: 'Hello {{ name }}', text: 'Hello.' },
    audience: { columns: ['name'], recipients: [{ address: `${name}@example.com`, values: ['Own'] }] },
  };
}

describe('messages', () => {
  it('are sent once for a key', async () => {
    const [first, again] = [await send('js-once'), await send('js-once')];
    assert.deepEqual([first.replayed, again.replayed], [false, true]);
    assert.equal(first.message.run.run, again.message.run.run);
    assert.equal((await emails('js-once@example.com')).length, 1);
  });

  it('with other content under the same key are refused', async () => {
    await send('js-strict');
    const error = await refusal(send('js-strict', { text: 'Something else.' }));
    assert.deepEqual([error.status, error.reason, error.mayHaveTakenEffect], [409, 'REQUEST_ID_REUSED', false]);
    assert.equal((await emails('js-strict@example.com')).length, 1);
  });

  it('are those of the first call where that is asked for', async () => {
    const first = await send('js-first', { text: 'By the first server.', firstWins: true, cc: ['team@example.com'] });
    const second = await send('js-first', { text: 'By the second server.', firstWins: true });
    assert.deepEqual([second.replayed, second.message.run.run], [true, first.message.run.run]);
    const found = await emails('js-first@example.com');
    assert.equal(found.length, 1);
    assert.match(await source(found[0]), /^Cc: team@example\.com\r$[^]*By the first server\./m);
  });

  it('have variables, and literal texts', async () => {
    const to = ['Ann', 'Bob'].map((name) => ({ address: `js-${name}@example.com`, name, city: 'Ulm' }));
    const braces = '{{ name }} {% if %} {# #} {{{%';
    await client.send('js-variables', {
      to, sender, text: literal(braces), subject: 'Hello {{ name }} in {{ city }} by {{ team }}',
      variables: { team: 'us' }, headers: { 'X-Team': '{{ team }}' },
    });
    for (const name of ['Ann', 'Bob']) {
      const [email] = await emails(`js-${name}@example.com`);
      assert.equal(email.subject, `Hello ${name} in Ulm by us`);
      const text = await source(email);
      assert.ok(text.includes(braces) && text.includes('X-Team: us'), text);
    }
  });

  it('go to the next node if one is down', async () => {
    const by = new Client({ url: `http://127.0.0.1:1, ${process.env.REVEILLE_URL}` });
    assert.equal((await send('js-next-node', { by })).replayed, false);
  });

  it('are exported as a list of JSON lines', async () => {
    const to = ['js-lines-1@example.com', 'js-lines-2@example.com'];
    const { run } = (await client.send('js-lines', { to, sender, subject: 'Hello', text: 'Hello.' })).message.run;
    const lines = await client.request('GET', `/v1/runs/${run}/recipients/export`);
    assert.deepEqual(lines.map((line) => line.address), to);
  });

  it('of the future are cancelled', async () => {
    const at = new Date(Date.now() + 3_600_000);
    await send('js-future', { at });
    const message = await client.message('js-future');
    assert.equal(message.recipients[0].state, 'RECIPIENT_STATE_PENDING');
    assert.ok(Math.abs(new Date(message.sendTime) - at) < 1000, message.sendTime);
    await client.cancel('js-future');
    assert.equal((await client.message('js-future')).recipients[0].state, 'RECIPIENT_STATE_CANCELLED');
  });

  it('are sent once although an answer is lost', async () => {
    const began = performance.now();
    const sent = await send('js-lost-answer', { by: new Client({ url: `${stub}/once` }) });
    assert.ok(sent.replayed);
    assert.ok(performance.now() - began >= 1000);
    assert.equal((await emails('js-lost-answer@example.com')).length, 1);
  });

  it('with a wrong field are refused with its name', async () => {
    const error = await refusal(send('js-wrong', { text: '{{ nothing }}' }));
    assert.deepEqual([error.status, error.reason], [400, 'INVALID_FIELD']);
    assert.match(error.fields[0].field, /text/);
  });

  it('without a key, or with uneven recipients or unknown options, are refused here', async () => {
    await assert.rejects(send(''), TypeError);
    const uneven = ['a@example.com', { address: 'b@example.com', name: 'B' }];
    await assert.rejects(send('js-uneven', { to: uneven }), TypeError);
    await assert.rejects(send('js-unknown', { from: 'a@example.com' }), TypeError);
  });

  it('to a recipient with a value of null are refused here', async () => {
    for (const to of [{ address: 'js-null@example.com', link: null }, { address: null }]) {
      await assert.rejects(send('js-null', { to }), TypeError);
    }
    await assert.rejects(send('js-null', { variables: { link: null } }), TypeError);
  });

  it('are repeated after an answer with Retry-After', async () => {
    assert.equal((await send('js-busy', { by: new Client({ url: `${stub}/busy` }) })).replayed, false);
  });

  it('are followed by events', async () => {
    let { cursor } = await client.events('latest', { wait: 0 });
    const { message: { run: { run } } } = await send('js-events');
    const seen = [];
    for (let tries = 0; tries < 20 && !seen.includes('EVENT_TYPE_RUN_FINISHED'); tries += 1) {
      const page = await client.events(cursor, { wait: 1000 });
      cursor = page.cursor;
      seen.push(...page.events.filter((event) => event.run === run).map((event) => event.type));
    }
    assert.ok(seen.includes('EVENT_TYPE_RECIPIENTS_SENT'), seen);
    assert.equal(seen.filter((type) => type === 'EVENT_TYPE_RUN_FINISHED').length, 1);
    const { events } = await client.events('', { types: ['EVENT_TYPE_RUN_OPENED'], wait: 0 });
    assert.deepEqual([...new Set(events.map((event) => event.type))], ['EVENT_TYPE_RUN_OPENED']);
  });

  it('are not missed in the events from latest on', async () => {
    const page = await new Client({ url: `${stub}/missed`, total: 3000 }).events('latest', { wait: 1000 });
    assert.deepEqual([page.events.length, page.cursor], [1, '8.0']);
  });
});

describe('schedules', () => {
  it('are put, changed and triggered once', async () => {
    const first = await client.putSchedule('js-put', schedule('js-put'));
    assert.equal((await client.putSchedule('js-put', schedule('js-put'))).etag, first.etag);
    const changed = await client.putSchedule('js-put', { ...schedule('js-put'), zone: 'Asia/Tokyo' });
    assert.deepEqual([changed.zone, changed.number], ['Asia/Tokyo', first.number]);
    const trigger = () => client.trigger('js-put', 'js-put-2026-W47');
    const runs = [await trigger(), await trigger()];
    assert.equal(runs[0].run.run, runs[1].run.run);
    assert.equal((await emails('js-put@example.com')).length, 1);
  });

  it('are triggered with the first list', async () => {
    await client.putSchedule('js-list', schedule('js-list-own'));
    const lists = ['one', 'two'].map((name) => [{ address: `js-list-${name}@example.com`, name }]);
    const trigger = (recipients, firstWins) => client.trigger('js-list', 'js-list-2026-W47', { recipients, firstWins });
    const runs = [await trigger(lists[0], true), await trigger(lists[1], true)];
    assert.equal(runs[0].run.run, runs[1].run.run);
    assert.deepEqual(runs.map((opened) => opened.replayed), [false, true]);
    assert.equal((await refusal(trigger(lists[1], false))).reason, 'REQUEST_ID_REUSED');
    assert.equal((await emails('js-list-one@example.com'))[0].subject, 'Hello one');
    for (const other of ['two', 'own']) assert.deepEqual(await emails(`js-list-${other}@example.com`, 0), []);
  });

  it('made of a template are put again', async () => {
    const { content, ...made } = { ...schedule('js-of-template'), template: 'js-template' };
    await client.request('PUT', '/v1/templates/js-template', content);
    const nothing = { variables: {}, headers: {}, cc: [], attachments: [], validateOnly: true };
    const to = { address: 'js-template@example.com', name: 'Ann' };
    await client.send('js-template', { to, template: 'js-template', ...nothing });
    for (const zone of ['Europe/Berlin', 'Asia/Tokyo']) {
      const put = await client.putSchedule('js-of-template', { ...made, zone });
      assert.deepEqual([put.zone, put.template], [zone, 'js-template@1']);
    }
    assert.equal((await client.putSchedule('js-of-template', schedule('js-of-template'))).template, '');
  });

  it('are those of the tenant of the client', async () => {
    const [shop, path] = [new Client({ tenant: 'js-shop' }), '/v1/schedules/js-tenant'];
    assert.equal((await client.putSchedule('js-tenant', schedule('js-tenant'))).tenant, 'default');
    for (const call of [['GET', path], ['DELETE', path], ['POST', `${path}/pause`, {}], ['GET', `${path}?stale=true`]]) {
      assert.equal((await refusal(shop.request(...call))).reason, 'SCHEDULE_NOT_FOUND', call.join(' '));
    }
    assert.equal((await shop.putSchedule('js-tenant', schedule('js-tenant'))).tenant, 'js-shop');
    const query = { updateMask: 'zone' };
    const { schedule: changed } = await shop.request('PATCH', path, { zone: 'Asia/Tokyo' }, { query });
    assert.deepEqual([changed.tenant, changed.zone], ['js-shop', 'Asia/Tokyo']);
    await shop.request('DELETE', path);
    const kept = await shop.request('GET', path, undefined, { query: { tenant: 'default' } });
    assert.equal(kept.schedule.zone, 'Europe/Berlin');
    assert.ok((await shop.request('GET', '/v1/cluster/members')).members);
  });

  it('are deleted although an answer is lost', async () => {
    await client.putSchedule('js-delete', schedule('js-delete'));
    const remove = (by, query) => by.request('DELETE', '/v1/schedules/js-delete', undefined, { query });
    assert.equal((await refusal(remove(client, { etag: '1.1' }))).reason, 'ETAG_MISMATCH');
    await remove(client, { validateOnly: true });
    assert.deepEqual(await remove(new Client({ url: `${stub}/once` }), { validateOnly: false }), {});
    assert.equal((await refusal(remove(client))).reason, 'SCHEDULE_NOT_FOUND');
  });

  it('keep a drawn key over retries', async () => {
    const flaky = new Client({ url: `${stub}/once` });
    await flaky.putSchedule('js-flaky', schedule('js-flaky'));
    const changed = await flaky.putSchedule('js-flaky', { ...schedule('js-flaky'), zone: 'Asia/Tokyo' });
    assert.equal(changed.zone, 'Asia/Tokyo');
    await flaky.trigger('js-flaky', 'js-flaky-2026-W47');
    assert.equal((await emails('js-flaky@example.com')).length, 1);
  });
});

describe('a call that fails', () => {
  const failure = (options, method = 'POST') => {
    return refusal(new Client({ total: 1500, ...options }).request(method, '/v1/cluster'));
  };

  it('and keeps no key is made once', async () => {
    const advance = (by, options) => refusal(by.request('POST', '/v1/clock/advance', { by: '3s' }, options));
    assert.equal((await advance(client)).fields[0].field, 'idempotency-key');
    const lost = await advance(new Client({ url: `${stub}/once` }), { key: '' });
    assert.deepEqual([lost.status, lost.mayHaveTakenEffect], [0, true]);
  });

  it('is marked after the last retry if its outcome is unknown', async () => {
    const error = await failure({ url: `${stub}/unknown` });
    assert.deepEqual([error.status, error.reason, error.mayHaveTakenEffect], [504, 'OUTCOME_UNKNOWN', true]);
    assert.equal((await failure({ url: `${stub}/unknown` }, 'GET')).mayHaveTakenEffect, false);
    assert.equal((await failure({ url: `${stub}/silent`, timeout: 500 })).mayHaveTakenEffect, true);
  });

  it('has no answer if the answer is cut', async () => {
    for (const kind of ['lost', 'cut']) {
      const error = await failure({ url: `${stub}/${kind}` }, 'GET');
      assert.deepEqual([error.status, error.mayHaveTakenEffect], [0, false]);
    }
  });

  it('ends at the timeout although an answer comes slowly', async () => {
    for (const timeout of [500, 20_000]) {
      const began = performance.now();
      const error = await failure({ url: `${stub}/drip`, timeout });
      assert.deepEqual([error.status, error.mayHaveTakenEffect], [0, true]);
      assert.ok(performance.now() - began < 4000);
    }
  });

  it('does not wait for a long Retry-After', async () => {
    const error = await failure({ url: `${stub}/later` });
    assert.deepEqual([error.status, error.retryAfter, error.mayHaveTakenEffect], [503, 3_600_000, false]);
  });

  it('has the oldest cursor if a cursor is too old', async () => {
    const error = await refusal(new Client({ url: `${stub}/old` }).events('1.0'));
    assert.deepEqual([error.reason, error.index], ['CURSOR_TOO_OLD', '1042.3']);
  });

  it('did nothing if the node cannot be reached', async () => {
    const error = await failure({ url: 'http://127.0.0.1:1' });
    assert.deepEqual([error.status, error.mayHaveTakenEffect], [0, false]);
  });
});

it('calls a node with TLS and tokens', async () => {
  const { TLS_URL: url, TLS_CA: caFile, TLS_TOKEN: token } = process.env;
  const shop = new Client({ url, caFile, token, tenant: 'shop' });
  assert.equal((await shop.putSchedule('js', schedule('js'))).tenant, 'shop');
  for (const [options, status, reason] of [
    [{ caFile, token }, 403, 'NOT_PERMITTED'],
    [{ caFile, token: 'rvt_wrong' }, 401, 'TOKEN_NOT_VALID'],
    [{ token }, 0, ''],
  ]) {
    const error = await refusal(new Client({ url, ...options }).putSchedule('js', schedule('js')));
    assert.deepEqual([error.status, error.reason, error.mayHaveTakenEffect], [status, reason, false]);
  }
});

describe('the transport of Nodemailer', () => {
  const transport = nodemailer.createTransport(reveilleTransport());
  const from = { name: 'Grüße, "Inc."', address: 'news@example.com' };
  const email = { from, subject: '{{ name }}', text: 'Hello {{ you }}.' };

  it('sends texts as they are, with the key of the job', async () => {
    const again = {
      ...email, to: 'Ann <js-mailer@example.com>', html: '<b>Hello {{ you }}.</b>', replyTo: 'h@example.com',
      headers: { 'X-Reveille-Key': 'js-mailer', 'X-Team': 'us' },
    };
    const sent = [await transport.sendMail(again), await transport.sendMail(again)];
    assert.deepEqual(sent.map((info) => info.sent.replayed), [false, true]);
    assert.deepEqual(sent[0].accepted, ['js-mailer@example.com']);
    const found = await emails('js-mailer@example.com');
    assert.deepEqual(found.map((one) => one.subject), ['{{ name }}']);
    const text = await source(found[0]);
    for (const part of ['Hello {{ you }}.', '<b>Hello {{ you }}.</b>', 'X-Team: us', 'Reply-To: h@example.com']) {
      assert.ok(text.includes(part), `${part} in ${text}`);
    }
  });

  it('refuses a job that renders anew unless the first email wins', async () => {
    const anew = (by, text) => by.sendMail({
      ...email, text, to: 'js-anew@example.com', headers: { 'X-Reveille-Key': 'js-anew' },
    });
    await anew(transport, 'At 9:00.');
    assert.equal((await refusal(anew(transport, 'At 9:01.'))).reason, 'REQUEST_ID_REUSED');
    const firstWins = nodemailer.createTransport(reveilleTransport({ firstWins: true }));
    assert.ok((await anew(firstWins, 'At 9:01.')).sent.replayed);
    assert.match(await source((await emails('js-anew@example.com'))[0]), /At 9:00\./);
  });

  it('takes the Message-ID as key, and sends a copy to each recipient', async () => {
    const copied = {
      ...email, to: ['js-copy-to@example.com'], cc: 'Zoe <js-copy-cc@example.com>', bcc: 'js-copy-bcc@example.com',
      messageId: '<js-copy@example.com>',
    };
    assert.equal((await transport.sendMail(copied)).sent.message.key, 'js-copy@example.com');
    assert.ok((await transport.sendMail(copied)).sent.replayed);
    const copies = await emails('js-copy-', 3);
    assert.equal(new Set(copies.map((one) => one.recipient)).size, 3);
    for (const copy of copies) {
      const text = await source(copy);
      for (const header of [`To: ${copy.recipient}`, 'Cc: Zoe <js-copy-cc@example.com>']) {
        assert.ok(text.includes(`\r\n${header}\r\n`), `${header} in ${text}`);
      }
    }
  });

  it('passes attachments', async () => {
    const attachments = [
      { filename: 'Zoë.pdf', content: Buffer.from('%PDF-1.7\n\0') },
      { filename: 'logo.png', content: 'iVBORw==', encoding: 'base64', cid: 'logo' },
      { filename: 'a.txt', content: 'naïve' },
    ];
    const withFiles = { ...email, to: 'js-file@example.com', html: '<img src="cid:logo">', attachments };
    await transport.sendMail(withFiles);
    const text = await source((await emails('js-file@example.com'))[0]);
    for (const part of [
      "filename*=utf-8''Zo%C3%AB.pdf", 'JVBERi0xLjcKAA==', 'Content-ID: <logo>', 'iVBORw==',
      Buffer.from('naïve').toString('base64'),
    ]) {
      assert.ok(text.includes(part), `${part} in ${text}`);
    }
  });

  it('refuses an attachment that is no file', async () => {
    const raw = { ...email, to: 'js-raw@example.com', attachments: [{ raw: 'Content-Type: text/plain\r\n\r\nx' }] };
    await assert.rejects(transport.sendMail(raw), /is none/);
  });

  it('refuses what it has no field for', async () => {
    const two = 'a@example.com, b@example.com';
    for (const more of [
      { replyTo: two }, { from: two }, { sender: 'a@example.com' }, { priority: 'high' },
      { headers: { 'X-A': ['b', 'c'] } }, { headers: [{ key: 'X-A', value: 'b' }, { key: 'x-a', value: 'c' }] },
    ]) {
      await assert.rejects(transport.sendMail({ ...email, to: 'js-more@example.com', ...more }), TypeError);
    }
  });

  it('leaves out a header without a value', async () => {
    const headers = { 'X-None': null, 'X-Zero': 0 };
    await transport.sendMail({ ...email, to: 'js-none@example.com', headers });
    const text = await source((await emails('js-none@example.com'))[0]);
    assert.deepEqual([text.includes('X-None'), text.includes('X-Zero: 0')], [false, true]);
  });
});
