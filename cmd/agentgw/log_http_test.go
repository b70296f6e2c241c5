package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"agentgw/internal/receipts"
)

// TestLogOverHTTP: checkpoint and key are for everybody, on either side; hashes are
// for operators, on theirs; entries are for nobody.
func TestLogOverHTTP(t *testing.T) {
	w := newSecretsWorld(t)
	defer w.server.stop(context.Background())
	get := func(address, path, token string) (int, http.Header, string) {
		t.Helper()
		r, err := http.NewRequest("GET", "http://"+address+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, res.Header, string(body)
	}
	agents, operators := w.server.agentsListener.Addr().String(), w.server.operatorsListener.Addr().String()
	token := w.server.adminToken.Reveal()
	r, err := http.NewRequest("POST", "http://"+agents+"/v1/act", strings.NewReader(`{"service":"none","action":"get"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+w.key)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
	_, rest, _ := strings.Cut(res.Header.Get("Agentgate-Receipt"), `/t/`)
	tree, _, _ := strings.Cut(rest, `"`)
	vkey, _ := w.want(exitDone, "receipts", "key")
	for _, address := range []string{agents, operators} {
		status, header, body := get(address, "/v1/log/key", "")
		if status != 200 || body != vkey || header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("key: %d %v %s", status, header, body)
		}
		status, header, body = get(address, "/v1/log/checkpoint", "")
		if status != 200 || body != string(w.server.receipts.Checkpoint()) || header.Get("Cache-Control") != "no-store" {
			t.Errorf("checkpoint: %d %v %s", status, header, body)
		}
		w.write("vkey", []byte(vkey))
		w.write("anchor", []byte(body))
		w.want(exitDone, "receipts", "verify", "data", "--vkey", "vkey", "--anchor", "anchor")
	}
	tiles := []string{"/v1/log/tile/0/000.p/1", "/v1/log/t/" + tree + "/tile/0/000.p/1", "/v1/log/t/" + tree + "/checkpoint"}
	for _, path := range tiles {
		if status, _, body := get(operators, path, ""); status != 401 || strings.Contains(body, "agentgate/") {
			t.Errorf("%s without a token: %d %s", path, status, body)
		}
		if status, _, _ := get(operators, path, w.key); status != 401 {
			t.Errorf("%s with an agent's key: %d", path, status)
		}
		for _, key := range []string{w.key, token} {
			if status, _, _ := get(agents, path, key); status == 200 {
				t.Errorf("%s: an agent gets it", path)
			}
		}
		status, header, body := get(operators, path, token)
		if status != 200 {
			t.Fatalf("%s: %d %s", path, status, body)
		}
		if strings.Contains(path, "/tile/") && (len(body)%32 != 0 || header.Get("Content-Type") != "application/octet-stream" || !strings.Contains(header.Get("Cache-Control"), "private")) {
			t.Errorf("%s: %v, %d bytes", path, header, len(body))
		}
	}
	_, _, checkpoint := get(operators, tiles[2], token)
	w.write("theirs", []byte(checkpoint))
	out, _ := w.want(exitUnproven, "receipts", "verify", "data", "--vkey", "vkey", "--anchor", "theirs", "--json")
	if !strings.Contains(out, `"verdict":"`+string(receipts.Unproven)+`"`) {
		t.Error(out)
	}
	for _, path := range []string{"/v1/log/", "/v1/log/tile/entries/000", "/v1/log/tile/data/000", "/v1/log/tile/0/999", "/v1/log/tile/0/000.p/1/x", "/v1/log/t/" + strings.Repeat("0", 32) + "/checkpoint"} {
		if status, _, body := get(operators, path, token); status != 404 || !strings.Contains(body, "not_found") {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}
