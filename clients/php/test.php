<?php

// Tests of the client against `reveille dev`. clients/test starts it, and the stub of a broken network.

declare(strict_types=1);

use Reveille\{Client, ReveilleException};

use function Reveille\literal;

require __DIR__ . '/src/Client.php';

const SENDER = 'News <news@example.com>';

function read(string $path): string
{
    return file_get_contents(getenv('REVEILLE_MAILBOX') . $path);
}

/** Returns the emails to an address, once there are so many. */
function emails(string $address, int $count = 1): array
{
    for ($tries = 0;; $tries++) {
        $found = json_decode(read("/emails.json?recipient=$address"), true);
        if (count($found) >= $count || $tries === 400) {
            return $found;
        }
        usleep(50_000);
    }
}

function send(string $key, string $text = 'Hello.', ?Client $by = null, mixed ...$options): array
{
    $options += ['to' => "$key@example.com", 'sender' => SENDER, 'subject' => 'Hello', 'text' => $text];
    return ($by ?? new Client())->send($key, ...$options);
}

function schedule(string $name, string $zone = 'Europe/Berlin'): array
{
    return [
        'timing' => ['daily' => ['hour' => 9]],
        'zone' => $zone,
        'policies' => ['minGap' => '0s', 'overlap' => 'OVERLAP_ALLOW'],
        'content' => ['sender' => SENDER, 'subject' => 'Hello {{ name }}', 'text' => 'Hello.'],
        'audience' => [
            'columns' => ['name'],
            'recipients' => [['address' => "$name@example.com", 'values' => ['Own']]],
        ],
    ];
}

function equal(mixed $expected, mixed $found): void
{
    if ($expected !== $found) {
        throw new LogicException('expected ' . json_encode($expected) . ', but found ' . json_encode($found));
    }
}

function refused(callable $call, string $kind = ReveilleException::class): Throwable
{
    try {
        $call();
    } catch (Throwable $refused) {
        return $refused instanceof $kind ? $refused : throw $refused;
    }
    throw new LogicException('it was not refused');
}

function failure(string $url, string $method = 'POST', float $timeout = 20): ReveilleException
{
    $client = new Client(url: $url, timeout: $timeout, total: 1.5);
    $began = hrtime(true);
    $error = refused(fn () => $client->request($method, '/v1/cluster'));
    equal(true, hrtime(true) - $began < 4e9);
    return $error;
}

$stub = getenv('REVEILLE_STUB');
$client = new Client();
$tests = [
    'same key again sends nothing' => function () {
        [$first, $again] = [send('php-once'), send('php-once')];
        equal([false, true], [$first['replayed'], $again['replayed']]);
        equal($first['message']['run']['run'], $again['message']['run']['run']);
        equal(1, count(emails('php-once@example.com')));
    },
    'other content under the same key is refused' => function () {
        send('php-strict');
        $error = refused(fn () => send('php-strict', 'Something else.'));
        equal([409, 'REQUEST_ID_REUSED', false], [$error->status, $error->reason, $error->mayHaveTakenEffect]);
        equal(1, count(emails('php-strict@example.com')));
    },
    'next node is asked if one is down' => function () {
        $client = new Client(url: 'http://127.0.0.1:1, ' . getenv('REVEILLE_URL'));
        $sent = $client->send('php-next-node', to: 'php-next-node@example.com', sender: SENDER, subject: 'Hello', text: 'Hello.');
        equal(false, $sent['replayed']);
    },
    'JSON lines are a list' => function () use ($client) {
        $to = ['php-lines-1@example.com', 'php-lines-2@example.com'];
        $run = $client->send('php-lines', to: $to, sender: SENDER, subject: 'Hello', text: 'Hello.')['message']['run']['run'];
        $lines = $client->request('GET', "/v1/runs/$run/recipients/export");
        equal($to, array_column($lines, 'address'));
    },
    'schedule that was read is put again' => function () use ($client) {
        $client->putSchedule('php-again', schedule('php-again'));
        $read = $client->request('GET', '/v1/schedules/php-again', query: ['withBody' => 'true'])['body'];
        equal([], $read['labels']);
        equal('Asia/Tokyo', $client->putSchedule('php-again', ['zone' => 'Asia/Tokyo'] + $read)['zone']);
    },
    'attachments arrive as they were given' => function () {
        send('php-file', attachments: [['Zoë.pdf', "%PDF-1.7\n\0", 'application/pdf']], cc: ['team@example.com']);
        $source = read('/emails/' . emails('php-file@example.com')[0]['number'] . '/source');
        equal(true, str_contains($source, "filename*=utf-8''Zo%C3%AB.pdf"));
        equal(true, str_contains($source, 'JVBERi0xLjcKAA=='));
        equal(true, str_contains($source, 'Cc: team@example.com'));
    },
    'first call wins where it is asked for' => function () {
        $first = send('php-first', 'By the first server.', firstWins: true);
        $second = send('php-first', 'By the second server.', firstWins: true);
        equal([true, $first['message']['run']['run']], [$second['replayed'], $second['message']['run']['run']]);
        $found = emails('php-first@example.com');
        equal(1, count($found));
        equal(true, str_contains(read("/emails/{$found[0]['number']}/source"), 'By the first server.'));
    },
    'variables are filled in, and a literal text is not' => function () use ($client) {
        $to = fn (string $name) => ['address' => "php-$name@example.com", 'name' => ucfirst($name), 'city' => 'Ulm'];
        $braces = '{{ name }} {% if %} {# #} {{{%';
        $client->send(
            'php-variables',
            to: [$to('ann'), $to('bob')],
            sender: SENDER,
            subject: 'Hello {{ name }} in {{ city }} by {{ team }}',
            text: literal($braces),
            variables: ['team' => 'us'],
            headers: ['X-Team' => '{{ team }}'],
        );
        foreach (['ann', 'bob'] as $name) {
            $email = emails("php-$name@example.com")[0];
            equal('Hello ' . ucfirst($name) . ' in Ulm by us', $email['subject']);
            $source = read("/emails/{$email['number']}/source");
            equal([true, true], [str_contains($source, $braces), str_contains($source, 'X-Team: us')]);
        }
    },
    'message of the future is cancelled' => function () use ($client) {
        $at = new DateTimeImmutable('+1 hour');
        send('php-future', at: $at);
        $message = $client->message('php-future');
        equal('RECIPIENT_STATE_PENDING', $message['recipients'][0]['state']);
        equal(true, abs((new DateTimeImmutable($message['sendTime']))->getTimestamp() - $at->getTimestamp()) <= 1);
        $client->cancel('php-future');
        equal('RECIPIENT_STATE_CANCELLED', $client->message('php-future')['recipients'][0]['state']);
    },
    'answer that is lost sends once' => function () use ($stub) {
        $began = hrtime(true);
        equal(true, send('php-lost-answer', by: new Client(url: "$stub/once"))['replayed']);
        equal(true, hrtime(true) - $began >= 1e9);
        equal(1, count(emails('php-lost-answer@example.com')));
    },
    'wrong field is named' => function () {
        $error = refused(fn () => send('php-wrong', '{{ nothing }}'));
        equal([400, 'INVALID_FIELD'], [$error->status, $error->reason]);
        equal(true, str_contains($error->fields[0]['field'], 'text'));
    },
    'empty key and uneven recipients are refused here' => function () {
        refused(fn () => send(''), InvalidArgumentException::class);
        $uneven = ['a@example.com', ['address' => 'b@example.com', 'name' => 'B']];
        refused(fn () => send('php-uneven', to: $uneven), InvalidArgumentException::class);
    },
    'recipient with a value of null is refused here' => function () {
        foreach ([['address' => 'php-null@example.com', 'link' => null], [['address' => null]]] as $to) {
            refused(fn () => send('php-null', to: $to), InvalidArgumentException::class);
        }
        refused(fn () => send('php-null', variables: ['link' => null]), InvalidArgumentException::class);
    },
    'answer with Retry-After is repeated' => function () use ($stub) {
        equal(false, send('php-busy', by: new Client(url: "$stub/busy"))['replayed']);
    },
    'events tell what became of it' => function () use ($client) {
        $cursor = $client->events('latest', wait: 0)['cursor'];
        $run = send('php-events')['message']['run']['run'];
        $seen = [];
        for ($tries = 0; $tries < 20 && !in_array('EVENT_TYPE_RUN_FINISHED', $seen); $tries++) {
            $page = $client->events($cursor, wait: 1);
            $cursor = $page['cursor'];
            $of = array_filter($page['events'], fn (array $event) => $event['run'] === $run);
            $seen = [...$seen, ...array_column($of, 'type')];
        }
        equal(true, in_array('EVENT_TYPE_RECIPIENTS_SENT', $seen));
        equal(1, array_count_values($seen)['EVENT_TYPE_RUN_FINISHED']);
        $opened = $client->events(types: ['EVENT_TYPE_RUN_OPENED'], wait: 0)['events'];
        equal(['EVENT_TYPE_RUN_OPENED'], array_unique(array_column($opened, 'type')));
    },
    'events from latest on are not missed' => function () use ($stub) {
        $page = (new Client(url: "$stub/missed", total: 3))->events('latest', wait: 1);
        equal([1, '8.0'], [count($page['events']), $page['cursor']]);
    },
    'schedule is put, changed and triggered once' => function () use ($client) {
        $first = $client->putSchedule('php-put', schedule('php-put'));
        equal($first['etag'], $client->putSchedule('php-put', schedule('php-put'))['etag']);
        $changed = $client->putSchedule('php-put', schedule('php-put', 'Asia/Tokyo'));
        equal(['Asia/Tokyo', $first['number']], [$changed['zone'], $changed['number']]);
        $trigger = fn () => $client->trigger('php-put', 'php-put-2026-W47')['run']['run'];
        equal($trigger(), $trigger());
        equal(1, count(emails('php-put@example.com')));
    },
    'trigger with a list goes to the first list' => function () use ($client) {
        $client->putSchedule('php-list', schedule('php-list-own'));
        $trigger = fn (string $name, bool $firstWins) => $client->trigger(
            'php-list',
            'php-list-2026-W47',
            [['address' => "php-list-$name@example.com", 'name' => $name]],
            $firstWins,
        );
        [$first, $second] = [$trigger('one', true), $trigger('two', true)];
        equal($first['run']['run'], $second['run']['run']);
        equal([false, true], [$first['replayed'], $second['replayed']]);
        equal('REQUEST_ID_REUSED', refused(fn () => $trigger('two', false))->reason);
        equal('Hello one', emails('php-list-one@example.com')[0]['subject']);
        equal([[], []], [emails('php-list-two@example.com', 0), emails('php-list-own@example.com', 0)]);
    },
    'schedule made of a template is put again' => function () use ($client) {
        $made = schedule('php-of-template');
        $client->request('PUT', '/v1/templates/php-template', $made['content']);
        $to = ['address' => 'php-template@example.com', 'name' => 'Ann'];
        $nothing = ['variables' => [], 'headers' => [], 'cc' => [], 'validateOnly' => true];
        $client->send('php-template', ...$nothing, to: $to, template: 'php-template');
        unset($made['content']);
        foreach (['Europe/Berlin', 'Asia/Tokyo'] as $zone) {
            $made = ['zone' => $zone, 'template' => 'php-template'] + $made;
            $put = $client->putSchedule('php-of-template', $made);
            equal([$zone, 'php-template@1'], [$put['zone'], $put['template']]);
        }
        equal('', $client->putSchedule('php-of-template', schedule('php-of-template'))['template']);
    },
    'tenant of the client holds for each call' => function () use ($client) {
        [$shop, $path] = [new Client(tenant: 'php-shop'), '/v1/schedules/php-tenant'];
        equal('default', $client->putSchedule('php-tenant', schedule('php-tenant'))['tenant']);
        foreach ([['GET', $path], ['DELETE', $path], ['POST', "$path/pause", []], ['GET', "$path?stale=true"]] as $call) {
            equal('SCHEDULE_NOT_FOUND', refused(fn () => $shop->request(...$call))->reason);
        }
        equal('php-shop', $shop->putSchedule('php-tenant', schedule('php-tenant'))['tenant']);
        $body = ['zone' => 'Asia/Tokyo'];
        $changed = $shop->request('PATCH', $path, $body, query: ['updateMask' => 'zone'])['schedule'];
        equal(['php-shop', 'Asia/Tokyo'], [$changed['tenant'], $changed['zone']]);
        $shop->request('DELETE', $path);
        equal('Europe/Berlin', $shop->request('GET', $path, query: ['tenant' => 'default'])['schedule']['zone']);
        equal(true, isset($shop->request('GET', '/v1/cluster/members')['members']));
    },
    'lost delete has deleted' => function () use ($client, $stub) {
        $client->putSchedule('php-delete', schedule('php-delete'));
        $delete = fn (Client $by, array $query = []) => $by->request('DELETE', '/v1/schedules/php-delete', query: $query);
        equal('ETAG_MISMATCH', refused(fn () => $delete($client, ['etag' => '1.1']))->reason);
        $delete($client, ['validateOnly' => true]);
        equal([], $delete(new Client(url: "$stub/once"), ['validateOnly' => false]));
        equal('SCHEDULE_NOT_FOUND', refused(fn () => $delete($client))->reason);
    },
    'write that keeps no key is made once' => function () use ($client, $stub) {
        $advance = fn (Client $by, ?string $key) => refused(
            fn () => $by->request('POST', '/v1/clock/advance', ['by' => '4s'], key: $key),
        );
        equal('idempotency-key', $advance($client, null)->fields[0]['field']);
        refused(fn () => $client->request('POST', '/', key: "a\nX-B: c"), InvalidArgumentException::class);
        $lost = $advance(new Client(url: "$stub/once"), '');
        equal([0, true], [$lost->status, $lost->mayHaveTakenEffect]);
    },
    'drawn key is kept over retries' => function () use ($stub) {
        $flaky = new Client(url: "$stub/once");
        $flaky->putSchedule('php-flaky', schedule('php-flaky'));
        equal('Asia/Tokyo', $flaky->putSchedule('php-flaky', schedule('php-flaky', 'Asia/Tokyo'))['zone']);
        $flaky->trigger('php-flaky', 'php-flaky-2026-W47');
        equal(1, count(emails('php-flaky@example.com')));
    },
    'node with TLS and tokens' => function () {
        [$url, $ca, $token] = [getenv('TLS_URL'), getenv('TLS_CA'), getenv('TLS_TOKEN')];
        $shop = new Client(url: $url, caFile: $ca, token: $token, tenant: 'shop');
        equal('shop', $shop->putSchedule('php', schedule('php'))['tenant']);
        $expected = [
            [['caFile' => $ca, 'token' => $token], 403, 'NOT_PERMITTED'],
            [['caFile' => $ca, 'token' => 'rvt_wrong'], 401, 'TOKEN_NOT_VALID'],
            [['token' => $token], 0, ''],
        ];
        foreach ($expected as [$options, $status, $reason]) {
            $error = refused(fn () => (new Client($url, ...$options))->putSchedule('php', schedule('php')));
            equal([$status, $reason, false], [$error->status, $error->reason, $error->mayHaveTakenEffect]);
        }
    },
    'unknown outcome is marked after the last retry' => function () use ($stub) {
        $error = failure("$stub/unknown");
        equal([504, 'OUTCOME_UNKNOWN', true], [$error->status, $error->reason, $error->mayHaveTakenEffect]);
        equal(false, failure("$stub/unknown", 'GET')->mayHaveTakenEffect);
        equal(true, failure("$stub/silent", timeout: 0.5)->mayHaveTakenEffect);
    },
    'cut answer is no answer' => function () use ($stub) {
        foreach (['lost', 'cut'] as $kind) {
            $error = failure("$stub/$kind", 'GET');
            equal([0, false], [$error->status, $error->mayHaveTakenEffect]);
        }
    },
    'slow answer ends at the timeout' => function () use ($stub) {
        foreach ([0.5, 20] as $timeout) {
            $error = failure("$stub/drip", timeout: $timeout);
            equal([0, true], [$error->status, $error->mayHaveTakenEffect]);
        }
    },
    'long Retry-After is not waited for' => function () use ($stub) {
        $error = failure("$stub/later");
        equal([503, 3600.0, false], [$error->status, $error->retryAfter, $error->mayHaveTakenEffect]);
    },
    'old cursor is answered with the oldest one' => function () use ($stub) {
        $error = refused(fn () => (new Client(url: "$stub/old"))->events('1.0'));
        equal(['CURSOR_TOO_OLD', '1042.3'], [$error->reason, $error->index]);
    },
    'node that cannot be reached did nothing' => function () {
        $error = failure('http://127.0.0.1:1');
        equal([0, false], [$error->status, $error->mayHaveTakenEffect]);
    },
];

$failed = 0;
foreach ($tests as $name => $test) {
    try {
        $test();
        echo "ok      $name\n";
    } catch (Throwable $error) {
        $failed++;
        echo "failed  $name: $error\n";
    }
}
echo 'php: ', count($tests) - $failed, " passed, $failed failed\n";
exit($failed ? 1 : 0);
