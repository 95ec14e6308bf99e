/** An address, or an object with `address` and a value for each variable of the templates. */
export type Recipient = string | ({ address: string } & Record<string, string | number>);

export interface Options {
  /**
   * Else `REVEILLE_URL`, else `http://127.0.0.1:7600`. With several, and commas between them, the next node is asked if one
   * does not answer.
   */
  url?: string;
  /** Else `REVEILLE_TOKEN`. */
  token?: string;
  /** The cluster's authority; else `REVEILLE_CA_FILE`, else those of the system. */
  caFile?: string;
  /** Of all calls, unless the `query` of `request` names another. */
  tenant?: string;
  /** Milliseconds for one attempt. Default 20,000: above the node's own 15 s, so that its answer comes first. */
  timeout?: number;
  /** Milliseconds for a call with all its retries, the last of which has at least a second. Default 60,000. */
  total?: number;
}

/** Subject, texts and headers are templates; `literal` makes one of a text that is not. */
export interface Email {
  to: Recipient | readonly Recipient[];
  sender?: string;
  subject?: string;
  text?: string;
  html?: string;
  replyTo?: string;
  /** Shown, and nothing is sent to them. */
  cc?: readonly string[];
  headers?: Record<string, string>;
  variables?: Record<string, string | number>;
  bulk?: boolean;
  /** With a `contentId` the HTML shows the file as `cid:ID`, and the email does not list it. */
  attachments?: ReadonlyArray<{ name: string; data: Uint8Array | string; type?: string; contentId?: string }>;
  template?: string;
  at?: Date;
  /** Another content under the same key is not refused: the first call is the answer. */
  firstWins?: boolean;
  pool?: string;
  priority?: number;
  policies?: Record<string, unknown>;
  validateOnly?: boolean;
}

export interface Run {
  run: string;
  tenant: string;
  schedule: string;
  state: string;
  audience: number;
  counts: Record<string, number>;
  [field: string]: unknown;
}

export interface Message {
  tenant: string;
  key: string;
  run: Run;
  sendTime: string | null;
  recipients: Array<{ address: string; state: string; [field: string]: unknown }>;
  [field: string]: unknown;
}

export interface Sent {
  message: Message;
  /** An earlier call with this key had sent it. */
  replayed: boolean;
  /** What keeps it from being sent as things are. */
  warnings: Warning[];
}

export interface Warning {
  /** Such as `WARNING_REASON_NO_RELAY`. */
  reason: string;
  [field: string]: unknown;
}

export interface Event {
  /** Such as `EVENT_TYPE_RUN_FINISHED`. */
  type: string;
  time: string;
  run: string;
  schedule: string;
  count: number;
  [field: string]: unknown;
}

export interface Events {
  events: Event[];
  /** `after` of the next call, also where there are no events. */
  cursor: string;
  more: boolean;
}

export interface RequestOptions {
  query?: Record<string, unknown>;
  /**
   * Idempotency key of a write. Absent: one is drawn and kept over the retries. Empty: the body has it, or the call takes
   * none; then it is not repeated if it may have happened.
   */
  key?: string;
  /** Milliseconds that the node may wait before it answers. */
  wait?: number;
}

export class ReveilleError extends Error {
  /** Status of HTTP; 0 if there was no answer. */
  status: number;
  /** Such as `REQUEST_ID_REUSED`; empty if a proxy answered, or nothing did. */
  reason: string;
  /** Of a request that is wrong: paths of fields, and what is wrong. */
  fields: Array<{ field: string; detail: string }>;
  /** With `CURSOR_TOO_OLD`, the oldest cursor of events that are kept. */
  index: string;
  /** Milliseconds that the node asked to wait. */
  retryAfter: number;
  /** The outcome is unknown. Repeat the call later with the same key. */
  mayHaveTakenEffect: boolean;
}

export class Client {
  constructor(options?: Options);
  /** Sends one email to each recipient, once for this key: the same call again sends nothing. */
  send(key: string, email: Email): Promise<Sent>;
  /** Returns a message with the state of each recipient. */
  message(key: string): Promise<Message>;
  /** Cancels what of a message has not been sent. After the answer nothing of it is handed to a relay. */
  cancel(key: string): Promise<Record<string, unknown>>;
  /** Creates a schedule, or makes the existing one equal to this. Its form is `ScheduleBody` in openapi.json. */
  putSchedule(name: string, schedule: Record<string, unknown>): Promise<Record<string, unknown>>;
  /** Opens a run of a schedule now, once for this key, to its own recipients or to these. */
  trigger(
    name: string,
    key: string,
    options?: { recipients?: readonly Recipient[]; firstWins?: boolean },
  ): Promise<{ run: Run; replayed: boolean; warnings: Warning[]; [field: string]: unknown }>;
  /** Returns the events after a cursor (empty: the oldest; `latest`), and waits for the first one. */
  events(
    after?: string,
    options?: { types?: readonly string[]; wait?: number; single?: boolean },
  ): Promise<Events>;
  /** Makes any call of the API, with retries, and returns its JSON; a list, if the answer is JSON lines. */
  request(method: string, path: string, body?: unknown, options?: RequestOptions): Promise<any>;
}

/** Returns a template that renders as this text: `{{`, `{%` and `{#` in it have no meaning. */
export function literal(text: string): string;
