<?php

declare(strict_types=1);

namespace Reveille;

/**
 * Returns a template that renders as this text: `{{`, `{%` and `{#` in it have no meaning.
 */
function literal(string $text): string
{
    return preg_replace('/\{(?=[{%#])/', '{{ "{" }}', $text);
}

/** A call that failed, after all retries. */
final class ReveilleException extends \RuntimeException
{
    /**
     * @param int $status of HTTP; 0 if there was no answer
     * @param string $reason such as `REQUEST_ID_REUSED`; empty if a proxy answered, or nothing did
     * @param list<array{field: string, detail: string}> $fields of a request that is wrong, each with its path
     * @param string $index with `CURSOR_TOO_OLD`, the oldest cursor of events that are kept
     * @param float $retryAfter seconds that the node asked to wait
     * @param bool $mayHaveTakenEffect the outcome is unknown: repeat the call later with the same key
     */
    public function __construct(
        string $detail,
        public readonly int $status = 0,
        public readonly string $reason = '',
        public readonly array $fields = [],
        public readonly string $index = '',
        public readonly float $retryAfter = 0.0,
        public bool $mayHaveTakenEffect = false,
        public readonly bool $isRetried = false,
    ) {
        $head = trim(($status ?: '') . ' ' . $reason);
        parent::__construct($head === '' ? $detail : "$head: $detail", $status);
    }
}

/**
 * Client of Reveille's HTTP API. It needs PHP 8.1 with its usual extensions (json, openssl) and nothing else.
 *
 * Every call is repeated with the same key after 429, 502, 503, 504, any answer with `Retry-After` and a broken
 * connection, until `total` seconds have passed. So a call that returned has happened once, and a call that threw says
 * whether it may have happened.
 *
 * @phpstan-type Recipient string|array<string, string|int|float>
 */
final class Client
{
    /** Calls that concern no tenant. Any other call gets the client's: the node refuses it where it is no field. */
    private const WITHOUT_TENANT =
        '~^/v1/(audience-parts|audit-records|backups|clock|cluster|openapi|pools|relays|tenants|tokens)\b~';
    /** Writes whose tenant is that of the schedule in their body. */
    private const WITH_SCHEDULE = '~^(POST|PUT|PATCH) /v1/(schedules(/[^/]+)?|campaigns|test-emails)(\?|$)~';

    /** @var non-empty-list<string> */
    private readonly array $nodes;
    private int $node = 0;
    private readonly ?string $token;
    private readonly ?string $caFile;

    /**
     * @param string|null $url of a node, or of several, with commas between them: any node answers, and if one does not,
     *     the next is asked
     * @param string|null $tenant of all calls, unless the query of `request` names another
     * @param float $timeout seconds for one attempt: above the node's own 15 s, so that the node's answer comes first
     * @param float $total seconds for a call with all its retries; the last one has at least a second
     */
    public function __construct(
        ?string $url = null,
        ?string $token = null,
        ?string $caFile = null,
        private readonly ?string $tenant = null,
        private readonly float $timeout = 20.0,
        private readonly float $total = 60.0,
    ) {
        $urls = $url ?? (getenv('REVEILLE_URL') ?: 'http://127.0.0.1:7600');
        $this->nodes = array_map(fn (string $one) => rtrim(trim($one), '/'), explode(',', $urls));
        foreach ($this->nodes as $node) {
            if (!preg_match('~^https?://[^/]~', $node)) {
                throw new \InvalidArgumentException("the URL $node is not http://HOST:PORT or https://HOST:PORT");
            }
        }
        $this->token = $token ?? (getenv('REVEILLE_TOKEN') ?: null);
        $this->caFile = $caFile ?? (getenv('REVEILLE_CA_FILE') ?: null);
    }

    /**
     * Sends one email to each recipient, once for this key: the same call again sends nothing. Another content under
     * the same key is refused (`REQUEST_ID_REUSED`), unless the first call is to win.
     *
     * Subject, texts and headers are templates; `literal` makes one of a text that is not.
     *
     * @param Recipient|list<Recipient> $to an address, an array with `address` and a value for each variable, or a list
     * @param array<string, string>|null $headers
     * @param array<string, string>|null $variables
     * @param list<array{0: string, 1: string, 2: string, 3?: string}> $attachments file name, bytes and media type;
     *     with a fourth text the HTML shows it as `cid:TEXT`
     * @param list<string> $cc shown, and nothing is sent to them
     * @param array<string, mixed>|null $policies
     * @return array<string, mixed> `message`, `replayed` and `warnings`
     */
    public function send(
        string $key,
        string|array $to,
        ?string $sender = null,
        ?string $subject = null,
        ?string $text = null,
        ?string $html = null,
        ?string $replyTo = null,
        ?array $headers = null,
        ?array $variables = null,
        ?bool $bulk = null,
        ?string $template = null,
        ?\DateTimeInterface $at = null,
        bool $firstWins = false,
        ?string $pool = null,
        ?int $priority = null,
        ?array $policies = null,
        ?bool $validateOnly = null,
        array $attachments = [],
        array $cc = [],
    ): array {
        $content = self::present([
            'sender' => $sender, 'replyTo' => $replyTo, 'cc' => $cc ?: null, 'subject' => $subject,
            'text' => $text, 'html' => $html, 'bulk' => $bulk, 'headers' => self::pairs($headers),
            'variables' => self::pairs($variables),
            'attachments' => array_map(fn (array $one) => self::attachment(...$one), $attachments) ?: null,
        ]);
        return $this->request('POST', '/v1/messages', self::present([
            'key' => self::given($key), 'keyRule' => self::rule($firstWins), 'content' => $content ?: null,
            'audience' => self::audience(is_string($to) || isset($to['address']) ? [$to] : $to),
            'template' => $template, 'sendTime' => $at?->format('Y-m-d\TH:i:s.uP'), 'pool' => $pool,
            'priority' => $priority,
            'policies' => $policies, 'validateOnly' => $validateOnly,
        ]), key: '');
    }

    /**
     * Returns a message with the state of each recipient.
     *
     * @return array<string, mixed>
     */
    public function message(string $key): array
    {
        return $this->request('GET', '/v1/messages/' . rawurlencode(self::given($key)))['message'];
    }

    /**
     * Cancels what of a message has not been sent. After the answer nothing of it is handed to a relay.
     *
     * @return array<string, mixed>
     */
    public function cancel(string $key): array
    {
        return $this->request('POST', '/v1/messages/' . rawurlencode(self::given($key)) . '/cancel', []);
    }

    /**
     * Creates a schedule, or makes the existing one equal to this.
     *
     * @param array<string, mixed> $schedule `ScheduleBody` in openapi.json
     * @return array<string, mixed>
     */
    public function putSchedule(string $name, array $schedule): array
    {
        $body = [...$schedule, 'name' => $name];
        return $this->request('PUT', '/v1/schedules/' . rawurlencode($name), $body)['schedule'];
    }

    /**
     * Opens a run of a schedule now, once for this key, to its own recipients or to these.
     *
     * @param list<Recipient>|null $recipients
     * @return array<string, mixed> `run`, `replayed` and `warnings`
     */
    public function trigger(string $name, string $key, ?array $recipients = null, bool $firstWins = false): array
    {
        return $this->request('POST', '/v1/schedules/' . rawurlencode($name) . '/trigger', self::present([
            'requestId' => self::given($key),
            'keyRule' => self::rule($firstWins),
            'audience' => $recipients === null ? null : self::audience($recipients),
        ]), key: '');
    }

    /**
     * Returns the events after a cursor, and waits up to `wait` seconds for the first one.
     *
     * @param string $after the cursor of an earlier answer, `latest`, or empty for the oldest that is kept
     * @param list<string> $types
     * @return array<string, mixed>
     */
    public function events(string $after = '', array $types = [], float $wait = 30.0, ?bool $single = null): array
    {
        if ($after === 'latest' && $wait > 0) {
            // A retry would begin later than the attempt that was lost.
            $after = $this->events($after, $types, 0, $single)['cursor'];
        }
        $query = ['after' => $after, 'types' => $types, 'wait' => "{$wait}s", 'single' => $single];
        return $this->request('GET', '/v1/events', query: $query, wait: $wait);
    }

    /**
     * Makes any call of the API, with retries, and returns its JSON; a list, if the answer is JSON lines.
     *
     * @param array<string, mixed>|null $body
     * @param array<string, mixed> $query
     * @param string|null $key idempotency key of a write. Null: one is drawn and kept over the retries. Empty: the body
     *     has it, or the call takes none; then it is not repeated if it may have happened
     * @param float $wait seconds that the node may wait before it answers
     * @return array<string, mixed>
     */
    public function request(
        string $method,
        string $path,
        ?array $body = null,
        array $query = [],
        ?string $key = null,
        float $wait = 0.0,
    ): array {
        $asked = [];
        if (!preg_match(self::WITHOUT_TENANT, $path)) {
            $isOfSchedule = preg_match(self::WITH_SCHEDULE, "$method $path") === 1;
            $query += [$isOfSchedule ? 'schedule.tenant' : 'tenant' => $this->tenant];
        }
        foreach ($query as $name => $value) {
            foreach ((array) $value as $one) {
                $text = is_bool($one) ? ($one ? 'true' : 'false') : (string) $one;
                $asked[] = $text === '' ? null : $name . '=' . rawurlencode($text);
            }
        }
        $asked = implode('&', array_filter($asked));
        $path .= $asked === '' ? '' : (str_contains($path, '?') ? '&' : '?') . $asked;
        $key ??= $method === 'GET' ? '' : bin2hex(random_bytes(16));
        if (preg_match('/[^ -~]/', $key)) {
            // PHP would send what comes after a line end as another header.
            throw new \InvalidArgumentException('the key is not an ASCII text of one line');
        }
        $headers = array_filter([
            'Accept: application/json',
            ($this->token ?? '') === '' ? null : "Authorization: Bearer $this->token",
            $key === '' ? null : "Idempotency-Key: $key",
            $body === null ? null : 'Content-Type: application/json',
        ]);
        $flags = JSON_THROW_ON_ERROR | JSON_UNESCAPED_SLASHES | JSON_PRESERVE_ZERO_FRACTION;
        $data = $body === null ? '' : json_encode(self::objects($body), $flags);
        $isOnce = $method === 'POST' && $key === '' && !isset($body['key']) && !isset($body['requestId']);
        $ends = self::now() + $this->total + $wait;
        $unknown = false;
        for ($attempt = 0;; $attempt++) {
            try {
                // A last attempt that is cut would leave open what an earlier one has told.
                $limit = min($this->timeout + $wait, max($ends - self::now(), 1.0));
                return $this->attempt($method, $this->nodes[$this->node], $path, $headers, $data, $limit);
            } catch (ReveilleException $failed) {
                if ($unknown && $method === 'DELETE' && $failed->status === 404) {
                    // An earlier attempt has deleted it.
                    return [];
                }
                $unknown = $unknown || ($failed->mayHaveTakenEffect && $method !== 'GET');
                // A node says when to ask it again. Another one may answer at once.
                $again = ($attempt + 1) % count($this->nodes) === 0 ? $failed->retryAfter : 0;
                $pause = max($again, (0.5 + lcg_value() / 2) * min(2.0, 0.1 * 2 ** $attempt));
                if (!$failed->isRetried || ($unknown && $isOnce) || self::now() + $pause >= $ends) {
                    $failed->mayHaveTakenEffect = $unknown;
                    throw $failed;
                }
                $this->node = ($this->node + 1) % count($this->nodes);
                usleep((int) ($pause * 1e6));
            }
        }
    }

    /**
     * Returns the fields as an object. An empty array of PHP may be a list or an object: these fields are objects.
     *
     * @param array<string, mixed> $fields
     */
    private static function objects(array $fields): object
    {
        foreach ($fields as $name => $value) {
            if ($value === [] && in_array($name, ['labels', 'policies', 'values'], true)) {
                $fields[$name] = (object) [];
            } elseif ($name === 'schedule' && is_array($value)) {
                $fields[$name] = self::objects($value);
            }
        }
        return (object) $fields;
    }

    /**
     * @param list<string> $headers
     * @return array<string, mixed>
     */
    private function attempt(
        string $method,
        string $node,
        string $path,
        array $headers,
        string $data,
        float $limit,
    ): array {
        $http = ['method' => $method, 'header' => $headers, 'content' => $data, 'timeout' => $limit];
        $http += ['ignore_errors' => true, 'follow_location' => 0, 'protocol_version' => 1.1, 'auto_decode' => false];
        $tls = $this->caFile === null ? [] : ['cafile' => $this->caFile];
        $ends = self::now() + $limit;
        $warnings = [];
        set_error_handler(function (int $_, string $warning) use (&$warnings): bool {
            $warnings[] = preg_replace('/^.*?\): /s', '', $warning);
            return true;
        });
        try {
            $context = stream_context_create(['http' => $http, 'ssl' => $tls]);
            $stream = fopen($node . $path, 'r', false, $context);
            $head = $stream === false ? '' : implode("\n", stream_get_meta_data($stream)['wrapper_data']);
            $content = $stream === false ? null : self::whole($stream, $head, $ends);
        } finally {
            restore_error_handler();
        }
        $status = preg_match('~^HTTP/\S+ (\d{3})~', $head, $found) ? (int) $found[1] : 0;
        $isLines = preg_match('~^content-type: *application/jsonl~mi', $head) === 1;
        if ($isLines && $content !== null) {
            $content = '[' . str_replace("\n", ',', trim($content)) . ']';
        }
        $json = json_decode((string) $content, true);
        $last = $isLines && is_array($json) ? end($json) : null;
        if (isset($last['error'])) {
            [$json, $status] = [$last['error'], $last['error']['status']];
        }
        if ($status === 200 && is_array($json)) {
            return $json;
        }
        if ($status === 0 || $status === 200) {
            $why = implode('; ', $warnings) ?: 'the answer broke off, or did not end in time';
            // Only this failure comes after the connection.
            $isConnected = $status !== 0 || str_contains($why, 'HTTP request failed');
            $isRetried = !str_contains($why, 'certificate verify failed') && !str_contains($why, 'cafile');
            $detail = "no answer from $node: $why";
            throw new ReveilleException($detail, mayHaveTakenEffect: $isConnected, isRetried: $isRetried);
        }
        $retryAfter = preg_match('/^retry-after: *(\d+) *$/mi', $head, $found) ? (float) $found[1] : 0.0;
        throw new ReveilleException(
            $json['detail'] ?? 'the answer says no more',
            $status,
            $json['reason'] ?? '',
            $json['fields'] ?? [],
            $json['index'] ?? '',
            $retryAfter,
            // Of a node, only 504 leaves the outcome open; a proxy may answer with others.
            $status >= 500 && $status !== 501 && $status !== 503,
            in_array($status, [429, 502, 503, 504], true) || $retryAfter > 0,
        );
    }

    /**
     * Returns the body of an answer; null if it broke off, or did not end in time. PHP itself reports neither.
     *
     * @param resource $stream
     */
    private static function whole($stream, string $head, float $ends): ?string
    {
        $body = '';
        do {
            $left = $ends - self::now();
            if ($left <= 0) {
                return null;
            }
            stream_set_timeout($stream, (int) $left, (int) (fmod($left, 1) * 1e6));
            $piece = (string) fread($stream, 65536);
            $body .= $piece;
        } while ($piece !== '' || !stream_get_meta_data($stream)['eof']);
        if (!preg_match('~^transfer-encoding: *chunked~mi', $head)) {
            $isCut = preg_match('~^content-length: *(\d+)~mi', $head, $found) && strlen($body) !== (int) $found[1];
            return $isCut ? null : $body;
        }
        $whole = '';
        for ($at = 0; preg_match('~\G([0-9a-f]+)[^\n]*\n~i', $body, $found, 0, $at); $at += $size + 2) {
            $at += strlen($found[0]);
            $size = (int) hexdec($found[1]);
            if ($size === 0) {
                return str_ends_with(substr($body, $at), "\r\n") ? $whole : null;
            }
            $whole .= substr($body, $at, $size);
        }
        return null;
    }

    private static function given(string $key): string
    {
        return $key !== '' ? $key : throw new \InvalidArgumentException(
            'the key is empty: give each message and each trigger a key of its own'
        );
    }

    private static function rule(bool $firstWins): ?string
    {
        return $firstWins ? 'KEY_RULE_FIRST_WINS' : null;
    }

    /**
     * @param array<string, mixed> $fields
     * @return array<string, mixed>
     */
    private static function present(array $fields): array
    {
        return array_filter($fields, fn (mixed $value): bool => $value !== null);
    }

    /** @return array<string, string> */
    private static function attachment(string $name, string $data, string $type, ?string $contentId = null): array
    {
        $file = ['name' => $name, 'contentType' => $type, 'data' => base64_encode($data), 'contentId' => $contentId];
        return self::present($file);
    }

    /**
     * @param array<string, string>|null $values
     * @return list<array{name: string, value: string}>|null
     */
    private static function pairs(?array $values): ?array
    {
        $missing = array_search(null, $values ?? [], true);
        if ($missing !== false) {
            throw new \InvalidArgumentException("$missing has no value: give a text, which may be empty");
        }
        $pair = fn (string $name, mixed $value): array => ['name' => $name, 'value' => (string) $value];
        return !$values ? null : array_map($pair, array_keys($values), array_values($values));
    }

    /**
     * Columns are in order of their names: the same recipients are always the same request.
     *
     * @param list<Recipient> $to
     * @return array{columns: list<string>, recipients: list<array{address: string, values: list<string>}>}
     */
    private static function audience(array $to): array
    {
        $people = array_map(fn (mixed $one): array => is_array($one) ? $one : ['address' => $one], array_values($to));
        $columns = array_diff(array_keys(array_merge([], ...$people)), ['address']);
        sort($columns);
        $recipients = [];
        foreach ($people as $one) {
            foreach (['address', ...$columns] as $name) {
                if (!isset($one[$name])) {
                    $why = "a recipient has no $name: give each a text, which may be empty";
                    throw new \InvalidArgumentException($why);
                }
            }
            $values = array_map(fn (string $column): string => (string) $one[$column], $columns);
            $recipients[] = ['address' => $one['address'], 'values' => $values];
        }
        return ['columns' => $columns, 'recipients' => $recipients];
    }

    private static function now(): float
    {
        return hrtime(true) / 1e9;
    }
}
