package receipts_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"agentgw/internal/receipts"
)

// signTree signs a checkpoint of a tree under its own name with the log's key.
func signTree(t *testing.T, dir, origin, body string) []byte {
	t.Helper()
	parts := strings.SplitN(strings.TrimSpace(string(read(t, filepath.Join(dir, "receipt-signing-key")))), "+", 5)
	seed, err := base64.StdEncoding.DecodeString(parts[4])
	if err != nil {
		t.Fatal(err)
	}
	public := ed25519.NewKeyFromSeed(seed[1:]).Public().(ed25519.PublicKey)
	hash := sha256.Sum256(append([]byte(origin+"\n\x01"), public...))
	signer, err := note.NewSigner(fmt.Sprintf("PRIVATE+KEY+%s+%s+%s", origin, hex.EncodeToString(hash[:4]), parts[4]))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := note.Sign(&note.Note{Text: origin + "\n" + body}, signer)
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

// TestWhatMayStandAroundAnAnchor: white space and the signatures of others count for
// nothing if they are spelled right, and both verifiers agree on what that is.
func TestWhatMayStandAroundAnAnchor(t *testing.T) {
	dir, vkey, l, _ := provenLog(t)
	anchor := string(l.Checkpoint())
	origin, _, _ := strings.Cut(vkey, "+")
	theirs := func(base64 string) string { return anchor + "— w.example/w " + base64 + "\n" }
	many := func(n int) string {
		text := anchor
		for i := range n {
			text += fmt.Sprintf("— w%d.example/w MTIzNHh4eHg=\n", i)
		}
		return text
	}
	var s *second
	if os.Getenv("SECOND_VERIFIER_PYTHON") != "" {
		s = startSecond(t)
	}
	keyFile, anchorFile := filepath.Join(t.TempDir(), "log.vkey"), filepath.Join(t.TempDir(), "anchor")
	write(t, keyFile, []byte(vkey+"\n"))
	for _, c := range []struct {
		name, anchor string
		want         int
	}{
		{"as it is", anchor, 0},
		{"white space", "\n \t\v\f\r" + strings.TrimSpace(anchor) + "\r\f\v\t \n", 0},
		{"a no-break space before it", "\u00a0" + anchor, 2},
		{"a no-break space behind it", anchor + "\u00a0", 2},
		{"a next line before it", "\u0085" + anchor, 2},
		{"a separator behind it", anchor + "\x1c", 2},
		{"99 signatures of others", many(99), 0},
		{"100 signatures of others", many(100), 2},
		{"one of 5 bytes", theirs("MTIzNHg="), 0},
		{"one of 4 bytes", theirs("MTIzNA=="), 2},
		{"one without padding", theirs("MTIzNHg"), 2},
		{"one with a padding too many", theirs("MTIzNHh4eHg=="), 2},
		{"one with bits that are not used", theirs("MTIzNHh4eHh="), 0},
		{"one of a name that is not UTF-8", anchor + "— w\xff MTIzNHg=\n", 2},
		{"of a tenant's tree of no record", string(signTree(t, dir, origin+"/t/"+strings.Repeat("0", 32), "0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n")), 4},
	} {
		if o := first(t, dir, keyFile, []byte(c.anchor)); o.Code != c.want {
			t.Errorf("%s: exit code %d, want %d: %s", c.name, o.Code, c.want, o.Why)
		}
		if s == nil {
			continue
		}
		write(t, anchorFile, []byte(c.anchor))
		if o := s.ask(t, dir, keyFile, anchorFile, true); o.Code != c.want {
			t.Errorf("%s: the second verifier: exit code %d, want %d: %s", c.name, o.Code, c.want, o.Why)
		}
	}
}

// TestSecondVerifierAgreesOnSignatureLines: whosever the signature of a proof says
// that it is, only one that is spelled right is another's.
func TestSecondVerifierAgreesOnSignatureLines(t *testing.T) {
	s := startSecond(t)
	_, vkey, _, proofs := provenLog(t)
	text := proofs[0].Text
	begin := bytes.LastIndex(text, []byte("— "))
	keyFile, proofFile := filepath.Join(t.TempDir(), "log.vkey"), filepath.Join(t.TempDir(), "proof")
	write(t, keyFile, []byte(vkey+"\n"))
	codes := map[int]int{}
	for i := begin; i < len(text); i++ {
		for bit := range 8 {
			changed := bytes.Clone(text)
			changed[i] ^= 1 << bit
			write(t, proofFile, changed)
			ours, err := receipts.VerifyProof(changed, vkey)
			if err != nil {
				t.Fatal(err)
			}
			theirs := s.ask(t, proofFile, keyFile, "", false)
			if ours.Verdict.ExitCode() != theirs.Code || theirs.holds() {
				t.Errorf("byte %d, bit %d: exit codes %d and %d\nGo: %s\nPython: %s", i-begin, bit, ours.Verdict.ExitCode(), theirs.Code, ours.Why, theirs.Why)
			}
			codes[theirs.Code]++
		}
	}
	t.Logf("exit codes %v", codes)
}
