package receipts_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"testing"

	"agentgw/internal/receipts"
)

// TestParamsOpenWithTheRightBytesAndSalt: two numbers that many programs take for one
// have two hashes, and a hash is opened by its own bytes and its own salt alone.
func TestParamsOpenWithTheRightBytesAndSalt(t *testing.T) {
	salt := sha256.Sum256([]byte("one receipt's"))
	params := `{"amount":9007199254740993}`
	h := receipts.HashParams(salt, "k-1", []byte(params))
	mac := hmac.New(sha256.New, salt[:])
	mac.Write([]byte(params))
	if want := base64.RawURLEncoding.EncodeToString(mac.Sum(nil)); h.Hash != want || h.Alg != "agentgate-params-v1" || h.Key != "k-1" {
		t.Errorf("%+v, want the hash %s", h, want)
	}
	if !h.Opens(salt, []byte(params)) {
		t.Error("the right bytes do not open it")
	}
	for _, other := range []string{`{"amount":9007199254740992}`, `{"amount":9007199254740993.0}`, `{"amount": 9007199254740993}`, params + "\n", ""} {
		if h.Opens(salt, []byte(other)) {
			t.Errorf("%q opens it", other)
		}
	}
	for i := range salt {
		wrong := salt
		wrong[i] ^= 1
		if h.Opens(wrong, []byte(params)) {
			t.Errorf("a salt with another byte %d opens it", i)
		}
	}
	old := *h
	old.Alg = "hmac-sha256"
	if old.Opens(salt, []byte(params)) {
		t.Error("a hash of which nobody knows how it was made is opened")
	}
}

// TestParamsAreSpelledInOneWay: a record tells by which key its parameters were
// salted; logs of before there were several tell none.
func TestParamsAreSpelledInOneWay(t *testing.T) {
	dir := t.TempDir()
	l, err := reopen(dir)
	if err != nil {
		t.Fatal(err)
	}
	with, without := outcome("with"), outcome("without")
	with.Params = &receipts.ParamsHash{Alg: receipts.ParamsAlg, Hash: "h", Key: "k"}
	without.Params = &receipts.ParamsHash{Alg: "hmac-sha256", Hash: "h"}
	mustAppend(t, l, with, without)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"with": `"params":{"alg":"agentgate-params-v1","hash":"h","key":"k"},`, "without": `"params":{"alg":"hmac-sha256","hash":"h"},`} {
		lines, err := receipts.FindIn(dir+"/receipts", id)
		if err != nil || len(lines) != 1 || !bytes.Contains(lines[0], []byte(want)) {
			t.Errorf("%s, %v", lines, err)
			continue
		}
		if r, err := receipts.ParseRecord(lines[0]); err != nil || fmt.Sprint(*r.Params) != fmt.Sprint(*map[string]*receipts.Record{"with": with, "without": without}[id].Params) {
			t.Errorf("%+v, %v", r, err)
		}
	}
}
