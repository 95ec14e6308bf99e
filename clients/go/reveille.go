// Package reveille calls Reveille's HTTP API. It needs the standard library and nothing else.
//
// Every call is repeated with the same key after 429, 502, 503, 504, any answer with Retry-After and a broken
// connection, until Client.Total has passed. So a call without an error has happened once, and an *Error says whether
// the call may have happened.
package reveille

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// NoKey as the key of Client.Request: the body has it, as "key" or "requestId", or the call takes none. Without a key a
// POST is not repeated if it may have happened.
const NoKey = " "

// Calls that concern no tenant. Any other call gets the tenant of the client: the node refuses it where it is no field.
var withoutTenant = regexp.MustCompile(
	`^/v1/(audience-parts|audit-records|backups|clock|cluster|openapi|pools|relays|tenants|tokens)\b`)

// Writes whose tenant is that of the schedule in their body.
var withSchedule = regexp.MustCompile(`^(POST|PUT|PATCH) /v1/(schedules(/[^/]+)?|campaigns|test-emails)(\?|$)`)

// Client calls one cluster. It may be used by several goroutines.
type Client struct {
	URL    string // such as https://n1.example.com:7600. Of several, with commas, the next is asked if one does not answer
	Token  string // empty: none
	Tenant string // of all calls, unless the query of Request names another; empty: the default tenant
	// Timeout of one attempt: above the node's own 15 s, so that the node's answer comes first.
	Timeout time.Duration
	// Total is the time for a call with all its retries. The last one has at least a second.
	Total time.Duration
	HTTP  *http.Client

	node atomic.Uint32 // that is asked, of those in URL
}

// New returns a client by REVEILLE_URL (without it http://127.0.0.1:7600), REVEILLE_TOKEN and REVEILLE_CA_FILE.
func New() (*Client, error) {
	client := &Client{
		URL:     os.Getenv("REVEILLE_URL"),
		Token:   os.Getenv("REVEILLE_TOKEN"),
		Timeout: 20 * time.Second,
		Total:   time.Minute,
		HTTP:    &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}
	if client.URL == "" {
		client.URL = "http://127.0.0.1:7600"
	}
	if file := os.Getenv("REVEILLE_CA_FILE"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reveille: REVEILLE_CA_FILE: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("reveille: REVEILLE_CA_FILE: %s has no certificate", file)
		}
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
		client.HTTP.Transport = transport
	}
	return client, nil
}

// Recipient is an address, with a value for each variable of the templates.
type Recipient struct {
	Address string
	Values  map[string]string
}

// To returns recipients without variables.
func To(addresses ...string) []Recipient {
	recipients := make([]Recipient, len(addresses))
	for place, address := range addresses {
		recipients[place].Address = address
	}
	return recipients
}

// Email is what Send sends. Subject, texts and headers are templates; Literal makes one of a text that is not.
type Email struct {
	To                  []Recipient
	Sender, ReplyTo     string
	Cc                  []string // shown, and nothing is sent to them
	Subject, Text, HTML string
	Headers, Variables  map[string]string
	Bulk, FirstWins     bool
	ValidateOnly        bool // check it, and send nothing
	Template            string
	At                  time.Time // zero: now
	Pool                string
	Priority            int
	Policies            map[string]any // finishBy, inDoubt, maxAttempts, retention
	Attachments         []Attachment
}

// Attachment is a file that each email carries. With a ContentID the HTML shows it as "cid:ID", and the email does not
// list it.
type Attachment struct {
	Name      string `json:"name"`
	Type      string `json:"contentType,omitempty"` // media type
	Data      []byte `json:"data"`
	ContentID string `json:"contentId,omitempty"`
}

// Run is one run: what it was opened for and how its recipients stand.
type Run struct {
	Run, Tenant, Schedule, Occurrence, Cause, State string
	Audience                                        int
	Counts                                          map[string]int
	Pause                                           *Pause // why it is paused
	CancelledBy                                     string // the later run that cancelled it
}

// Pause says why a run is paused: Cause is such as PAUSE_CAUSE_OPERATOR, and Text the operator's words.
type Pause struct{ Cause, Text string }

// Warning says what keeps emails from being sent: Reason is such as WARNING_REASON_NO_RELAY.
type Warning struct {
	Reason, Pool, Audience string
	Block                  *Block // why its campaign is blocked
}

// Block says why a schedule is blocked: Cause is such as BLOCK_CAUSE_FIRE_REFUSED, whose second refusal is Refusal.
type Block struct {
	Cause, Text string
	Refusal     *struct{ Reason, Message string }
}

// Message is a message with its run. Only Client.Message fills in the recipients.
type Message struct {
	Tenant, Key string
	Run         Run
	SendTime    *time.Time
	Recipients  []struct{ Address, State string }
}

// Sent is the answer of Send. Replayed: an earlier call with this key had sent it.
type Sent struct {
	Message  Message
	Replayed bool
	Warnings []Warning
}

// Triggered is the answer of Trigger. Replayed: an earlier call with this key had opened the run.
type Triggered struct {
	Run      Run
	Replayed bool
	Warnings []Warning
}

// Error is a call that failed, after all retries.
type Error struct {
	Status int    // of HTTP; 0 if there was no answer
	Reason string // such as REQUEST_ID_REUSED; empty if a proxy answered, or nothing did
	Detail string
	Fields []struct{ Field, Detail string } // of a request that is wrong
	Index  string                           // with CURSOR_TOO_OLD, the oldest cursor of events that are kept
	// MayHaveTakenEffect: the outcome is unknown. Repeat the call later with the same key.
	MayHaveTakenEffect bool
	RetryAfter         time.Duration // that the node asked for
	cause              error
	isRetried          bool
}

func (e *Error) Error() string {
	if e.Status == 0 {
		return "reveille: " + e.Detail
	}
	return strings.Join(strings.Fields(fmt.Sprintf("reveille: %d %s", e.Status, e.Reason)), " ") + ": " + e.Detail
}

// Unwrap returns why there was no answer.
func (e *Error) Unwrap() error { return e.cause }

var beyondASCII = regexp.MustCompile(`[^ -~]`)
var code = regexp.MustCompile(`\{+[{%#]`)

// Literal returns a template that renders as this text: {{, {% and {# in it have no meaning.
func Literal(text string) string {
	return code.ReplaceAllStringFunc(text, func(found string) string {
		last := len(found) - 1
		return strings.Repeat(`{{ "{" }}`, last) + found[last:]
	})
}

type fields map[string]any

var errNoKey = errors.New("reveille: the key is empty: give each message and each trigger a key of its own")

// Send sends one email to each recipient, once for this key: the same call again sends nothing. Another content under
// the same key is refused (REQUEST_ID_REUSED), unless FirstWins.
func (c *Client) Send(ctx context.Context, key string, email Email) (*Sent, error) {
	people, err := audience(email.To)
	if err != nil {
		return nil, err
	}
	content := present(fields{
		"sender": email.Sender, "replyTo": email.ReplyTo, "cc": email.Cc,
		"subject": email.Subject, "text": email.Text, "html": email.HTML, "bulk": email.Bulk,
		"headers": pairs(email.Headers), "variables": pairs(email.Variables), "attachments": email.Attachments,
	})
	body := fields{
		"template": email.Template, "audience": people, "pool": email.Pool, "priority": email.Priority,
		"policies": email.Policies, "validateOnly": email.ValidateOnly,
	}
	if len(content) > 0 {
		body["content"] = content
	}
	if !email.At.IsZero() {
		body["sendTime"] = email.At.UTC().Format(time.RFC3339Nano)
	}
	sent := &Sent{}
	return sent, c.keyed(ctx, "/v1/messages", "key", key, email.FirstWins, body, sent)
}

// Message returns a message with the state of each recipient.
func (c *Client) Message(ctx context.Context, key string) (*Message, error) {
	var answer struct{ Message Message }
	if key == "" {
		return nil, errNoKey
	}
	err := c.Request(ctx, "GET", "/v1/messages/"+url.PathEscape(key), nil, nil, "", 0, &answer)
	return &answer.Message, err
}

// Cancel cancels what of a message has not been sent. After the answer nothing of it is handed to a relay.
func (c *Client) Cancel(ctx context.Context, key string) (*Message, error) {
	var answer struct{ Message Message }
	if key == "" {
		return nil, errNoKey
	}
	err := c.Request(ctx, "POST", "/v1/messages/"+url.PathEscape(key)+"/cancel", nil, fields{}, "", 0, &answer)
	return &answer.Message, err
}

// PutSchedule creates a schedule, or makes the existing one equal to this: ScheduleBody in openapi.json.
func (c *Client) PutSchedule(ctx context.Context, name string, schedule map[string]any) (map[string]any, error) {
	body := fields{"name": name}
	for field, value := range schedule {
		body[field] = value
	}
	var answer struct{ Schedule map[string]any }
	err := c.Request(ctx, "PUT", "/v1/schedules/"+url.PathEscape(name), nil, body, "", 0, &answer)
	return answer.Schedule, err
}

// Trigger opens a run of a schedule now, once for this key. It goes to the schedule's own recipients if there are none
// here.
func (c *Client) Trigger(ctx context.Context, name, key string, to []Recipient, firstWins bool) (*Triggered, error) {
	body := fields{}
	if to != nil {
		people, err := audience(to)
		if err != nil {
			return nil, err
		}
		body["audience"] = people
	}
	opened := &Triggered{}
	path := "/v1/schedules/" + url.PathEscape(name) + "/trigger"
	return opened, c.keyed(ctx, path, "requestId", key, firstWins, body, opened)
}

// Event is one event; which fields it has depends on its type.
type Event struct {
	Cursor, Type, Tenant, Schedule, Run, Occurrence, Cause, Numbers, CancelledBy string
	Time                                                                         time.Time
	Count                                                                        int
	Addresses                                                                    []string
	Counts                                                                       map[string]int
	Pause                                                                        *Pause
	Block                                                                        *Block // why its schedule is blocked
}

// Events are the answer of Client.Events. Cursor is `after` of the next call, also where there are no events.
type Events struct {
	Events []Event
	Cursor string
	More   bool
}

// Events returns the events after a cursor, and waits for the first one, at most a minute. The cursor is that of an
// earlier answer, "latest", or empty for the oldest that is kept. Without types it returns all.
func (c *Client) Events(ctx context.Context, after string, wait time.Duration, types ...string) (*Events, error) {
	if after == "latest" && wait > 0 {
		// A retry would begin later than the attempt that was lost.
		first, err := c.Events(ctx, after, 0, types...)
		if err != nil {
			return first, err
		}
		after = first.Cursor
	}
	query := url.Values{"after": {after}, "types": types}
	query.Set("wait", strconv.FormatFloat(wait.Seconds(), 'f', -1, 64)+"s")
	events := &Events{}
	return events, c.Request(ctx, "GET", "/v1/events", query, nil, "", wait, events)
}

// keyed makes a call whose key is a field of its body.
func (c *Client) keyed(ctx context.Context, path, name, key string, firstWins bool, body fields, answer any) error {
	if key == "" {
		return errNoKey
	}
	body[name] = key
	if firstWins {
		body["keyRule"] = "KEY_RULE_FIRST_WINS"
	}
	return c.Request(ctx, "POST", path, nil, present(body), NoKey, 0, answer)
}

// Request makes any call of the API, with retries, and decodes its answer: into a slice, if it is JSON lines; nowhere,
// if answer is nil. With an empty key, one is drawn for a write and kept over the retries; see NoKey for the others. The
// node may wait before it answers.
func (c *Client) Request(
	ctx context.Context, method, path string, query url.Values, body any, key string, wait time.Duration, answer any,
) error {
	if key == NoKey {
		key = ""
	} else if key == "" && method != "GET" {
		random := make([]byte, 16)
		if _, err := rand.Read(random); err != nil {
			return err
		}
		key = fmt.Sprintf("%x", random)
	}
	if beyondASCII.MatchString(key) {
		return errors.New("reveille: the key is not an ASCII text of one line")
	}
	nodes := strings.Split(c.URL, ",")
	path = c.target(method, path, query)
	data := []byte(nil)
	if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	ends, unknown, backoff := time.Now().Add(c.Total+wait), false, 100*time.Millisecond
	for attempt := 1; ; attempt++ {
		node := strings.TrimSpace(nodes[int(c.node.Load())%len(nodes)])
		limit, left := c.Timeout+wait, time.Until(ends)
		if left < time.Second {
			left = time.Second // a last attempt that is cut would leave open what an earlier one has told
		}
		if left < limit {
			limit = left
		}
		failed := c.attempt(ctx, limit, method, strings.TrimSuffix(node, "/")+path, data, key, answer)
		if failed == nil {
			return nil
		}
		if unknown && method == "DELETE" && failed.Status == http.StatusNotFound {
			return nil // an earlier attempt has deleted it
		}
		unknown = unknown || failed.MayHaveTakenEffect && method != "GET"
		failed.MayHaveTakenEffect = unknown
		pause := time.Duration(float64(backoff) * (0.5 + mathrand.Float64()/2))
		if backoff *= 2; backoff > 2*time.Second {
			backoff = 2 * time.Second
		}
		// A node says when to ask it again. Another one may answer at once.
		if attempt%len(nodes) == 0 && pause < failed.RetryAfter {
			pause = failed.RetryAfter
		}
		if !failed.isRetried || unknown && method == "POST" && key == "" && !hasKey(data) || time.Now().Add(pause).After(ends) {
			return failed
		}
		c.node.Add(1)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return failed
		}
	}
}

// hasKey says whether a body has the key of its call.
func hasKey(body []byte) bool {
	var found map[string]json.RawMessage
	_ = json.Unmarshal(body, &found)
	return found["key"] != nil || found["requestId"] != nil
}

func (c *Client) attempt(
	parent context.Context, limit time.Duration, method, target string, data []byte, key string, answer any,
) *Error {
	ctx, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	isConnected, sent := false, atomic.Int32{}
	trace := &httptrace.ClientTrace{
		GotConn:      func(httptrace.GotConnInfo) { isConnected = true },
		WroteRequest: func(httptrace.WroteRequestInfo) { sent.Add(1) },
	}
	call, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), method, target, bytes.NewReader(data))
	if err != nil {
		return &Error{Detail: err.Error(), cause: err}
	}
	call.Header.Set("Accept", "application/json")
	if c.Token != "" {
		call.Header.Set("Authorization", "Bearer "+c.Token)
	}
	if key != "" {
		call.Header.Set("Idempotency-Key", key)
	}
	if data != nil {
		call.Header.Set("Content-Type", "application/json")
	}
	response, err := c.HTTP.Do(call)
	var content []byte
	if err == nil {
		content, err = io.ReadAll(response.Body)
		response.Body.Close()
	}
	status := 0
	if err == nil {
		status = response.StatusCode
	}
	if status == http.StatusOK && strings.HasPrefix(response.Header.Get("Content-Type"), "application/jsonl") {
		lines := bytes.Split(bytes.TrimSpace(content), []byte("\n"))
		var last struct{ Error json.RawMessage }
		var failed struct{ Status int }
		content = append(append([]byte("["), bytes.Join(lines, []byte(","))...), ']')
		if json.Unmarshal(lines[len(lines)-1], &last) == nil && json.Unmarshal(last.Error, &failed) == nil {
			content, status = last.Error, failed.Status
		}
	}
	if status == http.StatusOK && !json.Valid(content) {
		err = errors.New("it is not JSON")
	}
	if err != nil {
		var authority x509.UnknownAuthorityError
		var hostname x509.HostnameError
		var invalid x509.CertificateInvalidError
		isCertificate := errors.As(err, &authority) || errors.As(err, &hostname) || errors.As(err, &invalid)
		isRetried := parent.Err() == nil && !isCertificate
		return &Error{Detail: "no answer: " + err.Error(), MayHaveTakenEffect: isConnected, cause: err, isRetried: isRetried}
	}
	if status == http.StatusOK && answer != nil {
		err = json.Unmarshal(content, answer)
	}
	if err != nil {
		detail := "the call succeeded, but its answer cannot be decoded: " + err.Error()
		return &Error{Status: status, Detail: detail, MayHaveTakenEffect: true, cause: err}
	}
	if status == http.StatusOK {
		return nil
	}
	failed := &Error{}
	if json.Unmarshal(content, failed) != nil || failed.Detail == "" {
		failed.Detail = http.StatusText(status)
	}
	failed.Status = status
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
		failed.RetryAfter = time.Duration(seconds) * time.Second
	}
	failed.isRetried = status == 429 || status == 502 || status == 503 || status == 504 || failed.RetryAfter > 0
	// Of a node, only 504 leaves the outcome open; a proxy may answer with others. The transport of Go repeats a call
	// with a key by itself if its answer is lost.
	failed.MayHaveTakenEffect = status >= 500 && status != 501 && status != 503 || sent.Load() > 1
	return failed
}

// target returns a path with its query, and with the tenant of the client where the query names none.
func (c *Client) target(method, path string, query url.Values) string {
	all := url.Values{}
	if c.Tenant != "" && !withoutTenant.MatchString(path) {
		field := "tenant"
		if withSchedule.MatchString(method + " " + path) {
			field = "schedule.tenant"
		}
		all.Set(field, c.Tenant)
	}
	for name, values := range query {
		all[name] = values
	}
	mark := "?"
	if len(all) == 0 {
		mark = ""
	} else if strings.Contains(path, "?") {
		mark = "&"
	}
	return path + mark + all.Encode()
}

// present removes the fields that are zero, and lists without an entry.
func present(given fields) fields {
	for name, value := range given {
		found := reflect.ValueOf(value)
		if value == nil || found.IsZero() || found.Kind() == reflect.Slice && found.Len() == 0 {
			delete(given, name)
		}
	}
	return given
}

type pair struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

func pairs(values map[string]string) []pair {
	var list []pair
	for name, value := range values {
		list = append(list, pair{name, value})
	}
	sort.Slice(list, func(a, b int) bool { return list[a].Name < list[b].Name })
	return list
}

// audience returns recipients as the API reads them. Columns are in order of their names: the same recipients are
// always the same request.
func audience(to []Recipient) (fields, error) {
	columns, recipients := []string{}, []fields{}
	if len(to) > 0 {
		for column := range to[0].Values {
			columns = append(columns, column)
		}
	}
	sort.Strings(columns)
	for _, one := range to {
		values := []string{}
		for _, column := range columns {
			if value, ok := one.Values[column]; ok {
				values = append(values, value)
			}
		}
		if len(values) != len(columns) || len(values) != len(one.Values) {
			return nil, fmt.Errorf("reveille: %s has other variables than the first recipient: %v", one.Address, columns)
		}
		recipients = append(recipients, fields{"address": one.Address, "values": values})
	}
	return fields{"columns": columns, "recipients": recipients}, nil
}
