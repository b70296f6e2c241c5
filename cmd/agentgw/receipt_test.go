package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentgw/internal/receipts"
)

// ask sends a request with a key and returns status, receipt id and body.
func (w *secretsWorld) ask(method, path, key, body string) (status int, receipt, answer string) {
	w.t.Helper()
	r, err := http.NewRequest(method, "http://"+w.server.agentsListener.Addr().String()+path, strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	if m := receiptID.FindStringSubmatch(res.Header.Get("Agentgate-Receipt")); m != nil {
		receipt = m[1]
	}
	return res.StatusCode, receipt, string(text)
}

// TestReceiptByID: a caller sees what is recorded of its own calls, as it stands
// in the log; another's receipt does not exist, byte for byte.
func TestReceiptByID(t *testing.T) {
	w := newSecretsWorld(t)
	defer w.server.stop(context.Background())
	out, _ := w.want(exitDone, "keys", "create", "--id", "other", "--services", "*", "--users", "*", "--json")
	var other struct{ Key string }
	if err := json.Unmarshal([]byte(out), &other); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if status, _, _ := w.ask("GET", "/v1/whoami", other.Key, ""); status == 200 {
			break
		} else if time.Now().After(end) {
			t.Fatal("the other key is not known")
		}
	}

	_, allowed, _ := w.ask("POST", "/v1/act", w.key, `{"service":"bearer","action":"get","params":{"place":"x","q":"y"}}`)
	_, refused, _ := w.ask("POST", "/v1/act", w.key, `{"service":"none","action":"get"}`)
	_, odd, _ := w.ask("POST", "/v1/act", w.key, `{"service":"a<b>&c","action":"get"}`) // what JSON for HTML would spell otherwise
	_, nobodys, _ := w.ask("POST", "/v1/act", "agw_nobody", `{"service":"none","action":"get"}`)
	for id, kinds := range map[string]string{allowed: "intent outcome", refused: "refusal", odd: "refusal"} {
		status, _, body := w.ask("GET", "/v1/receipts/"+id, w.key, "")
		var got, shown struct {
			ID      string
			Records []json.RawMessage
			Proof   string
			Proofs  []string
		}
		if err := json.Unmarshal([]byte(body), &got); status != 200 || err != nil || got.ID != id {
			t.Fatalf("%d, %v: %s", status, err, body)
		}
		var have []string
		for _, r := range got.Records {
			var head struct{ Kind, ID string }
			if err := json.Unmarshal(r, &head); err != nil || head.ID != id {
				t.Errorf("%v: %s", err, r)
			}
			have = append(have, head.Kind)
		}
		if strings.Join(have, " ") != kinds {
			t.Errorf("%s: %v, want %s", id, have, kinds)
		}
		out, _ := w.want(exitDone, "receipts", "show", id, "--json")
		if err := json.Unmarshal([]byte(out), &shown); err != nil || len(shown.Records) != len(got.Records) {
			t.Fatalf("%v: %s", err, out)
		}
		vkey, _ := w.want(exitDone, "receipts", "key")
		w.write("vkey", []byte(vkey))
		w.write("proof", []byte(got.Proof))
		w.write("proofs", []byte(strings.Join(got.Proofs, "")))
		w.want(exitDone, "receipts", "verify", "proof", "--vkey", "vkey")
		out, _ = w.want(exitDone, "receipts", "verify", "proofs", "--vkey", "vkey", "--json")
		var report receipts.ProofReport
		if err := json.Unmarshal([]byte(out), &report); err != nil || report.ID != id || len(report.Records) != len(got.Records) {
			t.Fatalf("%v: %s", err, out)
		}
		for i := range report.Records {
			if string(report.Records[i].Record) != string(shown.Records[i]) {
				t.Errorf("proof %d shows %s, the log %s", i, report.Records[i].Record, shown.Records[i])
			}
		}
		for i := range shown.Records { // the log's own bytes, so that they can be hashed
			if string(shown.Records[i]) != string(got.Records[i]) {
				t.Errorf("the gateway says %s, the log %s", got.Records[i], shown.Records[i])
			}
		}
	}
	_, _, unknown := w.ask("GET", "/v1/receipts/ffffffffffffffffffffffffffffffff", other.Key, "")
	for what, id := range map[string]string{"another's": allowed, "another's refusal": refused, "one without a key": nobodys} {
		status, _, body := w.ask("GET", "/v1/receipts/"+id, other.Key, "")
		if id == "" || status != 404 || body != unknown {
			t.Errorf("%s: %d %s, of none %s", what, status, body, unknown)
		}
	}

	// What cannot be read is not taken for what is not there.
	folder := filepath.Join(w.data, "receipts")
	if err := os.Rename(folder, folder+".away"); err != nil {
		t.Fatal(err)
	}
	if status, _, body := w.ask("GET", "/v1/receipts/"+allowed, w.key, ""); status != 500 || !strings.Contains(body, `"internal"`) {
		t.Errorf("%d %s", status, body)
	}
	if err := os.Rename(folder+".away", folder); err != nil {
		t.Fatal(err)
	}
}
