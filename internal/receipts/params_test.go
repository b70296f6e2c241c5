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

// TestAProofIsOpened: with a proof that holds, and the salt, the parameters of the
// call are checked; of a proof that does not, or a record that says nothing of them,
// nothing is.
func TestAProofIsOpened(t *testing.T) {
	_, vkey, l, proofs := provenLog(t)
	both := append(bytes.Clone(proofs[0].Text), proofs[1].Text...)
	bare, err := prove(l, "a")
	if err != nil {
		t.Fatal(err)
	}
	wrong := provenSalt
	wrong[31] ^= 1
	for name, c := range map[string]struct {
		proof  []byte
		salt   [receipts.SaltSize]byte
		params string
		want   receipts.Verdict
		why    string
	}{
		"right":                {proofs[1].Text, provenSalt, provenParams, receipts.Holds, "had these parameters"},
		"both records":         {both, provenSalt, provenParams, receipts.Holds, "had these parameters"},
		"another number":       {proofs[1].Text, provenSalt, `{"amount":9007199254740992}`, receipts.Broken, "not those of the receipt"},
		"a line end":           {proofs[1].Text, provenSalt, provenParams + "\n", receipts.Broken, "not those of the receipt"},
		"another salt":         {proofs[1].Text, wrong, provenParams, receipts.Broken, "not those of the receipt"},
		"nothing of them":      {bare[0].Text, provenSalt, provenParams, receipts.Broken, "says anything of parameters"},
		"a proof that is none": {proofs[1].Text[:200], provenSalt, provenParams, receipts.Broken, "proof 1 of 1"},
	} {
		r, err := receipts.VerifyProof(c.proof, vkey)
		if err != nil {
			t.Fatal(err)
		}
		r.CheckParams(c.salt, []byte(c.params))
		if r.Verdict != c.want || !bytes.Contains([]byte(r.Why), []byte(c.why)) {
			t.Errorf("%s: %s, %s", name, r.Verdict, r.Why)
		}
	}
	old := outcome("old")
	old.Params = &receipts.ParamsHash{Alg: "hmac-sha256", Hash: receipts.HashParams(provenSalt, "", []byte(provenParams)).Hash}
	mustAppend(t, l, old)
	of, err := prove(l, "old")
	if err != nil {
		t.Fatal(err)
	}
	r, err := receipts.VerifyProof(of[0].Text, vkey)
	if err != nil {
		t.Fatal(err)
	}
	if r.CheckParams(provenSalt, []byte(provenParams)); r.Verdict != receipts.Broken {
		t.Errorf("a way to hash that nobody knows: %s", r.Why)
	}
}
