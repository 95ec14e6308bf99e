package reveille

// Tests of the client against `reveille dev`. clients/test starts it, and the stub of a broken network.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

const sender = "News <news@example.com>"

var ctx = context.Background()

func open(t *testing.T, at string) *Client {
	t.Helper()
	client, err := New()
	if err != nil {
		t.Fatal(err)
	}
	if at != "" {
		client.URL = at
	}
	return client
}

func stub(kind string) string { return os.Getenv("REVEILLE_STUB") + "/" + kind }

func read(t *testing.T, path string) []byte {
	t.Helper()
	answer, err := http.Get(os.Getenv("REVEILLE_MAILBOX") + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

type caught struct {
	Number  int
	Subject string
}

func (c caught) source(t *testing.T) string {
	return string(read(t, fmt.Sprintf("/emails/%d/source", c.Number)))
}

// emails returns the emails to an address, once there are so many.
func emails(t *testing.T, address string, count int) []caught {
	t.Helper()
	for tries := 0; ; tries++ {
		var found []caught
		if err := json.Unmarshal(read(t, "/emails.json?recipient="+address), &found); err != nil {
			t.Fatal(err)
		}
		if len(found) >= count || tries == 400 {
			return found
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func expectEmails(t *testing.T, address string, count int) []caught {
	t.Helper()
	found := emails(t, address, count)
	equal(t, len(found), count)
	return found
}

func equal[T comparable](t *testing.T, found, expected T) {
	t.Helper()
	if found != expected {
		t.Fatalf("found %v, expected %v", found, expected)
	}
}

func send(t *testing.T, client *Client, key string, change func(*Email)) *Sent {
	t.Helper()
	email := Email{To: To(key + "@example.com"), Sender: sender, Subject: "Hello", Text: "Hello."}
	if change != nil {
		change(&email)
	}
	sent, err := client.Send(ctx, key, email)
	if err != nil {
		t.Fatal(err)
	}
	return sent
}

func refused(t *testing.T, err error) *Error {
	t.Helper()
	var refused *Error
	if !errors.As(err, &refused) {
		t.Fatalf("it was not refused: %v", err)
	}
	return refused
}

func schedule(name, zone string) map[string]any {
	return map[string]any{
		"timing":   map[string]any{"daily": map[string]any{"hour": 9}},
		"zone":     zone,
		"policies": map[string]any{"minGap": "0s", "overlap": "OVERLAP_ALLOW"},
		"content":  map[string]any{"sender": sender, "subject": "Hello {{ name }}", "text": "Hello."},
		"audience": map[string]any{
			"columns":    []string{"name"},
			"recipients": []any{map[string]any{"address": name + "@example.com", "values": []string{"Own"}}},
		},
	}
}

// put returns the zone, number and etag of a schedule that it puts.
func put(t *testing.T, client *Client, name, to, zone string) [3]string {
	t.Helper()
	put, err := client.PutSchedule(ctx, name, schedule(to, zone))
	if err != nil {
		t.Fatal(err)
	}
	return [3]string{put["zone"].(string), put["number"].(string), put["etag"].(string)}
}

func trigger(t *testing.T, client *Client, name string) string {
	t.Helper()
	opened, err := client.Trigger(ctx, name, name+"-2026-W47", nil, false)
	if err != nil {
		t.Fatal(err)
	}
	return opened.Run.Run
}

func TestSameKeyAgainSendsNothing(t *testing.T) {
	client := open(t, "")
	first, again := send(t, client, "go-once", nil), send(t, client, "go-once", nil)
	equal(t, [2]bool{first.Replayed, again.Replayed}, [2]bool{false, true})
	equal(t, again.Message.Run.Run, first.Message.Run.Run)
	expectEmails(t, "go-once@example.com", 1)
}

func TestOtherContentUnderTheSameKeyIsRefused(t *testing.T) {
	client := open(t, "")
	send(t, client, "go-strict", nil)
	other := Email{To: To("go-strict@example.com"), Sender: sender, Subject: "Other", Text: "x"}
	_, err := client.Send(ctx, "go-strict", other)
	failed := refused(t, err)
	equal(t, failed.Status, 409)
	equal(t, failed.Reason, "REQUEST_ID_REUSED")
	equal(t, failed.MayHaveTakenEffect, false)
	expectEmails(t, "go-strict@example.com", 1)
}

func TestAttachmentsArriveAsTheyWereGiven(t *testing.T) {
	send(t, open(t, ""), "go-file", func(email *Email) {
		email.Cc = []string{"team@example.com", "boss@example.com"}
		email.Attachments = []Attachment{{Name: "Zoë.pdf", Type: "application/pdf", Data: []byte("%PDF-1.7\n\x00")}}
	})
	source := expectEmails(t, "go-file@example.com", 1)[0].source(t)
	equal(t, strings.Contains(source, "filename*=utf-8''Zo%C3%AB.pdf"), true)
	equal(t, strings.Contains(source, "JVBERi0xLjcKAA=="), true)
	equal(t, strings.Contains(source, "Cc: team@example.com,"), true)
}

func TestFirstCallWinsWhereItIsAskedFor(t *testing.T) {
	client := open(t, "")
	by := func(server string) func(*Email) {
		return func(email *Email) { email.Text, email.FirstWins = "By "+server, true }
	}
	first, second := send(t, client, "go-first", by("one")), send(t, client, "go-first", by("two"))
	equal(t, second.Replayed, true)
	equal(t, second.Message.Run.Run, first.Message.Run.Run)
	found := expectEmails(t, "go-first@example.com", 1)
	equal(t, strings.Contains(found[0].source(t), "By one"), true)
}

func TestVariablesAreFilledInAndLiteralTextIsNot(t *testing.T) {
	braces := "{{ name }} {% if %} {# #} {{{%"
	send(t, open(t, ""), "go-variables", func(email *Email) {
		email.To = []Recipient{
			{"go-ann@example.com", map[string]string{"name": "Ann", "city": "Ulm"}},
			{"go-bob@example.com", map[string]string{"city": "Ulm", "name": "Bob"}},
		}
		email.Subject, email.Text = "Hello {{ name }} in {{ city }} by {{ team }}", Literal(braces)
		email.Variables, email.Headers = map[string]string{"team": "us"}, map[string]string{"X-Team": "{{ team }}"}
	})
	for address, name := range map[string]string{"go-ann@example.com": "Ann", "go-bob@example.com": "Bob"} {
		found := expectEmails(t, address, 1)[0]
		equal(t, found.Subject, "Hello "+name+" in Ulm by us")
		source := found.source(t)
		equal(t, strings.Contains(source, braces) && strings.Contains(source, "X-Team: us"), true)
	}
}

func TestAnswerInJSONLinesIsASlice(t *testing.T) {
	client := open(t, "")
	sent := send(t, client, "go-lines", func(email *Email) {
		email.To = []Recipient{{Address: "go-lines-1@example.com"}, {Address: "go-lines-2@example.com"}}
	})
	var recipients []struct{ Address string }
	if err := client.Request(ctx, "GET", "/v1/runs/"+sent.Message.Run.Run+"/recipients/export", nil, nil, "", 0, &recipients); err != nil {
		t.Fatal(err)
	}
	equal(t, len(recipients), 2)
	equal(t, recipients[1].Address, "go-lines-2@example.com")
}

func TestNextNodeIsAskedIfOneIsDown(t *testing.T) {
	client := open(t, "")
	client.URL = "http://127.0.0.1:1, " + client.URL
	equal(t, send(t, client, "go-next-node", nil).Replayed, false)
}

func TestMessageOfTheFutureIsCancelled(t *testing.T) {
	client, at := open(t, ""), time.Now().Add(time.Hour)
	send(t, client, "go-future", func(email *Email) { email.At = at })
	state := func() *Message {
		message, err := client.Message(ctx, "go-future")
		if err != nil {
			t.Fatal(err)
		}
		return message
	}
	message := state()
	equal(t, message.Recipients[0].State, "RECIPIENT_STATE_PENDING")
	equal(t, at.Sub(*message.SendTime).Abs() < time.Second, true)
	if _, err := client.Cancel(ctx, "go-future"); err != nil {
		t.Fatal(err)
	}
	equal(t, state().Recipients[0].State, "RECIPIENT_STATE_CANCELLED")
}

func TestAnswerThatIsLostSendsOnce(t *testing.T) {
	began := time.Now()
	equal(t, send(t, open(t, stub("once")), "go-lost-answer", nil).Replayed, true)
	equal(t, time.Since(began) >= time.Second, true)
	expectEmails(t, "go-lost-answer@example.com", 1)
}

func TestAnswerWithRetryAfterIsRepeated(t *testing.T) {
	equal(t, send(t, open(t, stub("busy")), "go-busy", nil).Replayed, false)
}

func TestAnswerIsDecodedOnlyWhereItIsAskedFor(t *testing.T) {
	client, path := open(t, ""), "/v1/schedules/go-answer"
	put(t, client, "go-answer", "go-answer", "Europe/Berlin")
	if err := client.Request(ctx, "POST", path+"/pause", nil, struct{}{}, "", 0, nil); err != nil {
		t.Fatal(err)
	}
	var other struct{ Schedule string }
	began := time.Now()
	failed := refused(t, client.Request(ctx, "POST", path+"/pause", nil, struct{}{}, "", 0, &other))
	equal(t, failed.Status, 200)
	equal(t, failed.MayHaveTakenEffect, true)
	equal(t, time.Since(began) < 10*time.Second, true)
}

func TestWrongFieldIsNamed(t *testing.T) {
	email := Email{To: To("go-wrong@example.com"), Sender: sender, Subject: "Hello", Text: "{{ nothing }}"}
	_, err := open(t, "").Send(ctx, "go-wrong", email)
	failed := refused(t, err)
	equal(t, failed.Status, 400)
	equal(t, failed.Reason, "INVALID_FIELD")
	equal(t, strings.Contains(failed.Fields[0].Field, "text"), true)
}

func TestEmptyKeyAndUnevenRecipientsAreRefusedHere(t *testing.T) {
	client, email := open(t, ""), Email{To: To("go-never@example.com"), Sender: sender, Subject: "Hello", Text: "Hello."}
	if _, err := client.Send(ctx, "", email); err == nil {
		t.Fatal("an empty key")
	}
	_, noMessage := client.Message(ctx, "")
	_, noCancel := client.Cancel(ctx, "")
	lineEnd := client.Request(ctx, "POST", "/", nil, nil, "a\nb", 0, nil)
	for _, err := range []error{noMessage, noCancel, lineEnd} {
		var failed *Error
		equal(t, err != nil && !errors.As(err, &failed), true)
	}
	email.To = append(email.To, Recipient{"go-never-too@example.com", map[string]string{"name": "Too"}})
	if _, err := client.Send(ctx, "go-uneven", email); err == nil {
		t.Fatal("uneven recipients")
	}
}

func TestEventsTellWhatBecameOfIt(t *testing.T) {
	client := open(t, "")
	page, err := client.Events(ctx, "latest", 0)
	if err != nil {
		t.Fatal(err)
	}
	run, seen := send(t, client, "go-events", nil).Message.Run.Run, map[string]int{}
	for tries := 0; tries < 20 && seen["EVENT_TYPE_RUN_FINISHED"] == 0; tries++ {
		if page, err = client.Events(ctx, page.Cursor, time.Second); err != nil {
			t.Fatal(err)
		}
		for _, event := range page.Events {
			if event.Run == run {
				seen[event.Type]++
			}
		}
	}
	equal(t, seen["EVENT_TYPE_RUN_FINISHED"], 1)
	equal(t, seen["EVENT_TYPE_RECIPIENTS_SENT"] > 0, true)
	opened, err := client.Events(ctx, "", 0, "EVENT_TYPE_RUN_OPENED")
	if err != nil || len(opened.Events) == 0 {
		t.Fatal(err, opened)
	}
	for _, event := range opened.Events {
		equal(t, event.Type, "EVENT_TYPE_RUN_OPENED")
	}
}

func TestEventsFromLatestOnAreNotMissed(t *testing.T) {
	client := open(t, stub("missed"))
	client.Total = 3 * time.Second
	page, err := client.Events(ctx, "latest", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, len(page.Events), 1)
	equal(t, page.Cursor, "8.0")
}

func TestEventsKeepTheNodeThatAnswers(t *testing.T) {
	client := open(t, "")
	client.URL = "http://127.0.0.1:1, " + client.URL
	if _, err := client.Events(ctx, "", time.Second); err != nil {
		t.Fatal(err)
	}
	equal(t, client.node.Load(), 1)
}

func TestScheduleIsPutChangedAndTriggeredOnce(t *testing.T) {
	client := open(t, "")
	first := put(t, client, "go-put", "go-put", "Europe/Berlin")
	equal(t, put(t, client, "go-put", "go-put", "Europe/Berlin"), first)
	changed := put(t, client, "go-put", "go-put", "Asia/Tokyo")
	equal(t, changed[0], "Asia/Tokyo")
	equal(t, changed[1], first[1])
	equal(t, trigger(t, client, "go-put"), trigger(t, client, "go-put"))
	expectEmails(t, "go-put@example.com", 1)
}

func TestTriggerWithListGoesToTheFirstList(t *testing.T) {
	client := open(t, "")
	put(t, client, "go-list", "go-list-own", "Europe/Berlin")
	trigger := func(name string, firstWins bool) (*Triggered, error) {
		to := []Recipient{{"go-list-" + name + "@example.com", map[string]string{"name": name}}}
		return client.Trigger(ctx, "go-list", "go-list-2026-W47", to, firstWins)
	}
	first, err := trigger("one", true)
	if err != nil {
		t.Fatal(err)
	}
	second, err := trigger("two", true)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, second.Run.Run, first.Run.Run)
	equal(t, [2]bool{first.Replayed, second.Replayed}, [2]bool{false, true})
	_, err = trigger("two", false)
	equal(t, refused(t, err).Reason, "REQUEST_ID_REUSED")
	equal(t, expectEmails(t, "go-list-one@example.com", 1)[0].Subject, "Hello one")
	expectEmails(t, "go-list-two@example.com", 0)
	expectEmails(t, "go-list-own@example.com", 0)
}

func TestScheduleMadeOfATemplateIsPutAgain(t *testing.T) {
	client := open(t, "")
	made := schedule("go-of-template", "Europe/Berlin")
	if err := client.Request(ctx, "PUT", "/v1/templates/go-template", nil, made["content"], "", 0, &struct{}{}); err != nil {
		t.Fatal(err)
	}
	to := []Recipient{{"go-template@example.com", map[string]string{"name": "Ann"}}}
	email := Email{To: to, Template: "go-template", Cc: []string{}, Variables: map[string]string{}, ValidateOnly: true}
	if _, err := client.Send(ctx, "go-template", email); err != nil {
		t.Fatal(err)
	}
	delete(made, "content")
	made["template"] = "go-template"
	for _, zone := range []string{"Europe/Berlin", "Asia/Tokyo"} {
		made["zone"] = zone
		put, err := client.PutSchedule(ctx, "go-of-template", made)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, put["zone"].(string), zone)
		equal(t, put["template"].(string), "go-template@1")
	}
	equal(t, put(t, client, "go-of-template", "go-of-template", "Asia/Tokyo")[0], "Asia/Tokyo")
}

func TestTenantOfTheClientHoldsForEachCall(t *testing.T) {
	client, shop, path := open(t, ""), open(t, ""), "/v1/schedules/go-tenant"
	shop.Tenant = "go-shop"
	put(t, client, "go-tenant", "go-tenant", "Europe/Berlin")
	calls := [][2]string{{"GET", path}, {"DELETE", path}, {"POST", path + "/pause"}, {"GET", path + "?stale=true"}}
	for _, call := range calls {
		equal(t, refused(t, shop.Request(ctx, call[0], call[1], nil, nil, "", 0, nil)).Reason, "SCHEDULE_NOT_FOUND")
	}
	put(t, shop, "go-tenant", "go-tenant", "Europe/Berlin")
	var answer struct {
		Schedule struct{ Tenant, Zone string }
		Members  []struct{}
	}
	request := func(method, path string, query url.Values, body any) {
		t.Helper()
		if err := shop.Request(ctx, method, path, query, body, "", 0, &answer); err != nil {
			t.Fatal(err)
		}
	}
	request("PATCH", path, url.Values{"updateMask": {"zone"}}, fields{"zone": "Asia/Tokyo"})
	equal(t, answer.Schedule.Tenant, "go-shop")
	equal(t, answer.Schedule.Zone, "Asia/Tokyo")
	request("DELETE", path, nil, nil)
	request("GET", path, url.Values{"tenant": {"default"}}, nil)
	equal(t, answer.Schedule.Zone, "Europe/Berlin")
	request("GET", "/v1/cluster/members", nil, nil)
	equal(t, len(answer.Members), 1)
}

func TestLostDeleteHasDeleted(t *testing.T) {
	client, path := open(t, ""), "/v1/schedules/go-delete"
	put(t, client, "go-delete", "go-delete", "Europe/Berlin")
	changed := client.Request(ctx, "DELETE", path, url.Values{"etag": {"1.1"}}, nil, "", 0, nil)
	equal(t, refused(t, changed).Reason, "ETAG_MISMATCH")
	if err := open(t, stub("once")).Request(ctx, "DELETE", path, nil, nil, "", 0, &struct{}{}); err != nil {
		t.Fatal(err)
	}
	again := client.Request(ctx, "DELETE", path, nil, nil, "", 0, &struct{}{})
	equal(t, refused(t, again).Reason, "SCHEDULE_NOT_FOUND")
}

func TestWriteThatKeepsNoKeyIsMadeOnce(t *testing.T) {
	advance := func(client *Client, key string) *Error {
		body := map[string]string{"by": "5s"}
		return refused(t, client.Request(ctx, "POST", "/v1/clock/advance", nil, body, key, 0, &struct{}{}))
	}
	equal(t, advance(open(t, ""), "").Fields[0].Field, "idempotency-key")
	lost := advance(open(t, stub("once")), NoKey)
	equal(t, lost.Status, 0)
	equal(t, lost.MayHaveTakenEffect, true)
}

func TestWriteWithTheKeyInItsBodyIsRepeated(t *testing.T) {
	put(t, open(t, ""), "go-body-key", "go-body-key", "Europe/Berlin")
	var opened Triggered
	path, body := "/v1/schedules/go-body-key/trigger", fields{"requestId": "go-body-key"}
	if err := open(t, stub("once")).Request(ctx, "POST", path, nil, body, NoKey, 0, &opened); err != nil {
		t.Fatal(err)
	}
	equal(t, opened.Replayed, true)
}

func TestLongCallIsNotCutWhereItMayWait(t *testing.T) {
	client := open(t, stub("unknown"))
	client.Timeout, client.Total = 100*time.Millisecond, time.Second
	failed := refused(t, client.Request(ctx, "POST", "/v1/backups", nil, nil, NoKey, time.Second, nil))
	equal(t, failed.Status, 504)
}

func TestExpiredCertificateEndsTheCall(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	client, began := open(t, server.URL), time.Now()
	client.HTTP, client.Total = server.Client(), 3*time.Second
	// The certificate of httptest is valid until 2084.
	client.HTTP.Transport.(*http.Transport).TLSClientConfig.Time = func() time.Time { return began.AddDate(100, 0, 0) }
	failed := refused(t, client.Request(ctx, "POST", "/v1/cluster", nil, nil, "", 0, nil))
	equal(t, failed.MayHaveTakenEffect, false)
	equal(t, time.Since(began) < time.Second, true)
}

func TestDrawnKeyIsKeptOverRetries(t *testing.T) {
	flaky := open(t, stub("once"))
	put(t, flaky, "go-flaky", "go-flaky", "Europe/Berlin")
	equal(t, put(t, flaky, "go-flaky", "go-flaky", "Asia/Tokyo")[0], "Asia/Tokyo")
	trigger(t, flaky, "go-flaky")
	expectEmails(t, "go-flaky@example.com", 1)
}

func TestFailedCallSaysWhetherItMayHaveTakenEffect(t *testing.T) {
	for _, one := range []struct {
		url, method, reason string
		status              int
		mayHaveTakenEffect  bool
	}{
		{stub("unknown"), "POST", "OUTCOME_UNKNOWN", 504, true},
		{stub("unknown"), "GET", "OUTCOME_UNKNOWN", 504, false},
		{stub("silent"), "POST", "", 0, true},
		{stub("lost"), "GET", "", 0, false},
		{stub("cut"), "GET", "", 0, false},
		{stub("drip"), "POST", "", 0, true},
		{stub("later"), "POST", "NO_QUORUM", 503, false},
		{"http://127.0.0.1:1", "POST", "", 0, false},
	} {
		client, began := open(t, one.url), time.Now()
		client.Total = 3 * time.Second / 2
		if one.url == stub("silent") {
			client.Timeout = time.Second / 2
		}
		failed := refused(t, client.Request(ctx, one.method, "/v1/cluster", nil, nil, "", 0, &struct{}{}))
		equal(t, failed.Status, one.status)
		equal(t, failed.Reason, one.reason)
		equal(t, failed.MayHaveTakenEffect, one.mayHaveTakenEffect)
		equal(t, time.Since(began) < 4*time.Second, true)
	}
}

func TestNodeWithTLSAndTokens(t *testing.T) {
	at, ca, token := os.Getenv("TLS_URL"), os.Getenv("TLS_CA"), os.Getenv("TLS_TOKEN")
	for _, one := range []struct {
		ca, token, tenant, reason string
		status                    int
	}{
		{ca, token, "shop", "", 200},
		{ca, token, "", "NOT_PERMITTED", 403},
		{ca, "rvt_wrong", "shop", "TOKEN_NOT_VALID", 401},
		{"", token, "shop", "", 0},
	} {
		t.Setenv("REVEILLE_CA_FILE", one.ca)
		client := open(t, at)
		client.Token, client.Tenant = one.token, one.tenant
		made, err := client.PutSchedule(ctx, "go", schedule("go", "Europe/Berlin"))
		if one.status == 200 {
			if err != nil {
				t.Fatal(err)
			}
			equal(t, made["tenant"].(string), "shop")
			continue
		}
		failed := refused(t, err)
		equal(t, failed.Status, one.status)
		equal(t, failed.Reason, one.reason)
		equal(t, failed.MayHaveTakenEffect, false)
	}
}

func TestOldCursorIsAnsweredWithTheOldestOne(t *testing.T) {
	_, err := open(t, stub("old")).Events(ctx, "1.0", 0)
	failed := refused(t, err)
	equal(t, failed.Reason, "CURSOR_TOO_OLD")
	equal(t, failed.Index, "1042.3")
}
