package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jonboulle/clockwork"

	"agentgw/internal/receipts"
	"agentgw/internal/store"
	"agentgw/internal/vault"
)

// paramsWorld is a gateway that runs, with an action that takes parameters.
type paramsWorld struct {
	*reloading
	*bench
}

func newParamsWorld(t *testing.T) paramsWorld {
	t.Helper()
	r := newReloading(t, "{}")
	r.more = "  search:\n    base_url: " + r.url + "\n    allow_private: true\n    actions: {get: {method: GET, path: /x, params: {q: string}}}\n"
	r.reload("{}")
	b := newBench(t, "")
	b.data = r.server.settings.DataDir
	b.write("log.vkey", []byte(r.server.receipts.VerifierKey()+"\n"))
	return paramsWorld{r, b}
}

// receipts runs a command on the data folder of the gateway.
func (w paramsWorld) receipts(code int, args ...string) (out, errs string) {
	w.bench.t.Helper()
	return w.want(code, append(append([]string{"receipts"}, args...), "--data", w.data)...)
}

// searches calls with these parameters, and returns the id of the receipt.
func (w paramsWorld) searches(params string) string {
	w.bench.t.Helper()
	request, err := http.NewRequest("POST", "http://"+w.server.agentsListener.Addr().String()+"/v1/act",
		strings.NewReader(`{"service":"search","action":"get","params": `+params+"\n}"))
	if err != nil {
		w.bench.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+w.key)
	res, err := http.DefaultClient.Do(request)
	if err != nil {
		w.bench.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if body, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK {
		w.bench.t.Fatalf("%d %s, %v", res.StatusCode, body, err)
	}
	id, _, _ := strings.Cut(strings.TrimPrefix(res.Header.Get("Agentgate-Receipt"), `id="`), `"`)
	return id
}

// opened is what `receipts open` tells of a receipt that can be opened.
func (w paramsWorld) opened(id string) (o openedReceipt) {
	w.bench.t.Helper()
	out, _ := w.receipts(exitDone, "open", id, "--json")
	if err := json.Unmarshal([]byte(out), &o); err != nil || len(o.Salt) != 64 {
		w.bench.t.Fatalf("%v: %s", err, out)
	}
	return o
}

// keyOf names the key that the parameters of a receipt were hashed under.
func (w paramsWorld) keyOf(id string) string {
	w.bench.t.Helper()
	record, err := committed(filepath.Join(w.data, "receipts"), id)
	if err != nil {
		w.bench.t.Fatal(err)
	}
	return record.Params.Key
}

// commit adds a receipt of the tenant acme that commits to parameters, as a gateway
// does, to the data folder.
func (b *bench) commit(id, params string) {
	b.t.Helper()
	must := func(err error) {
		b.t.Helper()
		if err != nil {
			b.t.Fatal(err)
		}
	}
	s, err := store.Open(b.t.Context(), "data")
	must(err)
	defer func() { _ = s.Close() }()
	kek, err := vault.LoadKEK(b.t.Context(), vault.KEKSource{Folder: "data"}, s)
	must(err)
	salts, err := vault.LoadSalts(b.t.Context(), s, kek, clockwork.NewRealClock())
	must(err)
	r := call(receipts.KindOutcome, id)
	salt, key, err := salts.Salt(r.Tenant, id)
	must(err)
	r.Params = receipts.HashParams(salt, key, []byte(params))
	l := b.openLog()
	b.add(l, call(receipts.KindIntent, id))
	b.add(l, r)
	must(l.Close())
}

// TestOneReceiptIsOpened: the salt of a receipt shows its parameters to who has its
// proof and no gateway, these bytes alone, and those of no other receipt.
func TestOneReceiptIsOpened(t *testing.T) {
	w := newParamsWorld(t)
	const params = `{ "q":"9007199254740993" }`
	id, other := w.searches(params), w.searches(params)
	o := w.opened(id)
	if o.ID != id || o.Tenant != "tenant:t" || o.Alg != receipts.ParamsAlg || o.Matches != nil || w.opened(other).Salt == o.Salt {
		t.Errorf("%+v, and another receipt with %+v", o, w.opened(other))
	}
	w.bench.write("params.json", []byte(params))
	w.bench.write("near.json", []byte(strings.Replace(params, "993", "992", 1)))
	if out, _ := w.receipts(exitDone, "open", `id="`+id+`"`, "--params", "params.json"); !strings.Contains(out, "salt        "+o.Salt+"\n") || !strings.Contains(out, "parameters  these are the receipt's\n") {
		t.Error(out)
	}
	if out, _ := w.receipts(exitNotHold, "open", id, "--params", "near.json"); !strings.Contains(out, "NOT THE RECEIPT'S") {
		t.Error(out)
	}
	if out, _ := w.receipts(exitNotHold, "open", id, "--params", "near.json", "--json"); !strings.Contains(out, `"matches":false`) {
		t.Error(out)
	}
	if _, errs := w.receipts(exitNotHold, "open", "nobody"); !strings.Contains(errs, `no receipt "nobody"`) {
		t.Error(errs)
	}
	w.receipts(exitCannotRun, "open", id, "--params", "nowhere.json")

	// An outsider has the proof, the key of the log, and what he was told.
	proof, _ := w.receipts(exitDone, "prove", id, "--all")
	w.bench.write("proof", []byte(proof))
	alone := func(code int, args ...string) string {
		t.Helper()
		out, errs := w.want(code, append([]string{"receipts", "verify", "proof", "--vkey", "log.vkey"}, args...)...)
		return out + errs
	}
	if out := alone(exitDone, "--salt", o.Salt, "--params", "params.json"); !strings.Contains(out, "the call had these parameters, byte for byte: 2 records commit to them") {
		t.Error(out)
	}
	if out := alone(exitDone); strings.Contains(out, "these parameters") {
		t.Error(out)
	}
	for _, c := range []struct {
		code int
		says string
		args []string
	}{
		{exitNotHold, "not those of the receipt", []string{"--salt", o.Salt, "--params", "near.json"}},
		{exitNotHold, "not those of the receipt", []string{"--salt", w.opened(other).Salt, "--params", "params.json"}},
		{exitUsage, "go together", []string{"--salt", o.Salt}},
		{exitUsage, "go together", []string{"--params", "params.json"}},
		{exitUsage, "64 hex digits", []string{"--salt", o.Salt[2:], "--params", "params.json"}},
		{exitCannotRun, "--params", []string{"--salt", o.Salt, "--params", "nowhere.json"}},
	} {
		if out := alone(c.code, c.args...); !strings.Contains(out, c.says) {
			t.Errorf("%q: %s", c.args, out)
		}
	}
	w.want(exitUsage, "receipts", "verify", w.data, "--vkey", "log.vkey", "--salt", o.Salt, "--params", "params.json")
}

// TestShreddingATenantsKey: once it is deleted the parameters of the tenant's
// receipts so far are shown by nobody, also not with a copy of all that is there; the
// gateway makes another key for later ones, and the log is as it was.
func TestShreddingATenantsKey(t *testing.T) {
	w := newParamsWorld(t)
	const params = `{"q":"1234"}`
	w.bench.write("params.json", []byte(params))
	id := w.searches(params)
	before, first := w.opened(id), w.keyOf(id)
	segment := filepath.Join(w.data, firstSegment[len("data/"):])
	was := w.read(segment)
	if _, errs := w.receipts(exitUsage, "shred", "--tenant", "t"); !strings.Contains(errs, "--yes") || w.opened(id) != before {
		t.Errorf("without being sure: %s", errs)
	}
	w.receipts(exitUsage, "shred", "--yes")
	w.receipts(exitNotHold, "shred", "--tenant", "key:t", "--yes")

	if out, _ := w.receipts(exitDone, "shred", "--tenant", "t", "--yes"); !strings.Contains(out, first+" of tenant:t is deleted") {
		t.Error(out)
	}
	if out, _ := w.receipts(exitDone, "shred", "--tenant", "t", "--yes"); !strings.Contains(out, first+" of tenant:t was deleted before") {
		t.Error(out)
	}
	if out, _ := w.receipts(exitDone, "shred", "--tenant", "t", "--yes", "--json"); !strings.Contains(out, first) || !strings.Contains(out, `"shredded":true`) {
		t.Error(out)
	}
	done := time.Now()
	if _, errs := w.receipts(exitNotHold, "open", id, "--params", "params.json"); !strings.Contains(errs, "was deleted") {
		t.Error(errs)
	}
	later := ""
	eventually(t, "the gateway makes another key", func() bool {
		later = w.searches(params)
		return w.keyOf(later) != first
	})
	t.Logf("another key after %v", time.Since(done))
	if after := w.opened(later); after.Salt == before.Salt {
		t.Error("the salt is of the old key")
	}
	w.receipts(exitDone, "open", later, "--params", "params.json")

	// Whoever takes all there is cannot open it either.
	copyFolder(t, "stolen", w.data)
	if _, err := os.Stat("stolen/vault-key"); err != nil {
		t.Fatal(err)
	}
	if _, errs := w.want(exitNotHold, "receipts", "open", id, "--data", "stolen"); !strings.Contains(errs, "was deleted") {
		t.Error(errs)
	}
	if now := w.read(segment); !bytes.HasPrefix(now, was) {
		t.Error("the log was changed")
	}
	checkpoint, _ := w.receipts(exitDone, "checkpoint")
	w.bench.write("anchor", []byte(checkpoint))
	w.want(exitDone, "receipts", "verify", w.data, "--vkey", "log.vkey", "--anchor", "anchor")
}
