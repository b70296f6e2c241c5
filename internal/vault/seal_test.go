package vault

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestWycheproof runs project Wycheproof's AES-GCM vectors (Apache-2.0, see
// testdata/LICENSE.wycheproof) through the function that opens credentials. The
// vectors for other sizes of key, nonce or tag have no counterpart here.
func TestWycheproof(t *testing.T) {
	var file struct {
		TestGroups []struct {
			IVSize, KeySize, TagSize int
			Tests                    []struct {
				TCID                               int
				Comment                            string
				Key, IV, AAD, Msg, CT, Tag, Result string
			}
		}
	}
	b, err := os.ReadFile("testdata/aes_gcm_test.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	ran := map[string]int{}
	for _, g := range file.TestGroups {
		if g.IVSize != 8*nonceSize || g.KeySize != 8*kekSize || g.TagSize != 8*tagSize {
			continue
		}
		for _, c := range g.Tests {
			ran[c.Result]++
			aead, err := newAEAD([32]byte(unhex(t, c.Key)))
			if err != nil {
				t.Fatal(err)
			}
			got, err := open(aead, unhex(t, c.IV+c.CT+c.Tag), unhex(t, c.AAD))
			switch {
			case c.Result == "valid" && (err != nil || !bytes.Equal(got, unhex(t, c.Msg))):
				t.Errorf("%d (%s): %x, %v", c.TCID, c.Comment, got, err)
			case c.Result == "invalid" && err == nil:
				t.Errorf("%d (%s): opened", c.TCID, c.Comment)
			}
		}
	}
	// So that a change to the file or to the filter does not empty the test.
	if ran["valid"] != 39 || ran["invalid"] != 27 {
		t.Errorf("ran %v", ran)
	}
}

// TestSealedFormat opens a sealed text by the words of the package comment
// alone, with nothing of the package.
func TestSealedFormat(t *testing.T) {
	key := [32]byte{1, 2, 3}
	aead, err := newAEAD(key)
	if err != nil {
		t.Fatal(err)
	}
	p := place{tenant: "", service: "github", user: "user-42", field: "secret", version: 3}
	sealed, err := seal(aead, []byte{7}, []byte("s3cret"), p.additionalData())
	if err != nil {
		t.Fatal(err)
	}
	if len(sealed) != 1+12+6+16 || sealed[0] != 7 {
		t.Fatalf("sealed is %x", sealed)
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		t.Fatal(err)
	}
	plain, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	ad := "agw/v1" + "\x00\x00\x00\x00" + "\x00\x00\x00\x06github" + "\x00\x00\x00\x07user-42" + "\x00\x00\x00\x06secret" + "\x00\x00\x00\x00\x00\x00\x00\x03"
	got, err := plain.Open(nil, sealed[1:13], sealed[13:], []byte(ad))
	if err != nil || string(got) != "s3cret" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestAWrappedKeyOfAnotherLength is none, though the vault key has wrapped it.
func TestAWrappedKeyOfAnotherLength(t *testing.T) {
	kek, err := ParseKEK(strings.Repeat("0", 64))
	if err != nil {
		t.Fatal(err)
	}
	wrapping, err := newAEAD(kek.DeriveKey("wrap"))
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{0, 16, 31, 32, 33} {
		wrapped, err := seal(wrapping, nil, make([]byte, size), wrapContext("t", 1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := kek.unwrap(kek.fingerprint(), wrapped, wrapContext("t", 1), "it"); (err == nil) != (size == kekSize) || err != nil && !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func TestNoncesAreFresh(t *testing.T) {
	aead, err := newAEAD([32]byte{})
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for range 1000 {
		sealed, err := seal(aead, nil, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		nonce := string(sealed[:nonceSize])
		if seen[nonce] {
			t.Fatal("a nonce came twice")
		}
		seen[nonce] = true
	}
}

func TestShortTextsDoNotOpen(t *testing.T) {
	aead, err := newAEAD([32]byte{})
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := seal(aead, nil, []byte("x"), nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range sealed {
		if _, err := open(aead, sealed[:n], nil); err == nil {
			t.Errorf("%d bytes of %d open", n, len(sealed))
		}
	}
}

// TestPlacesAreApart: the bytes that a sealed text is bound to are equal exactly
// for equal places, whatever the names hold.
func TestPlacesAreApart(t *testing.T) {
	name := rapid.StringMatching(`[:/a\x00]{0,3}`)
	version := rapid.Int64Range(0, 2)
	draw := func(t *rapid.T) place {
		return place{name.Draw(t, "tenant"), name.Draw(t, "service"), name.Draw(t, "user"), name.Draw(t, "field"), version.Draw(t, "version"), name.Draw(t, "host")}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t), draw(t)
		if rapid.Bool().Draw(t, "shift") {
			// The likeliest collision: a byte on the other side of a border.
			b = a
			if a.user != "" {
				b.service, b.user = a.service+a.user[:1], a.user[1:]
			}
		}
		if (a == b) != bytes.Equal(a.additionalData(), b.additionalData()) {
			t.Fatalf("%+v and %+v", a, b)
		}
		if (a.tenant == b.tenant) != bytes.Equal(wrapContext(a.tenant, 1), wrapContext(b.tenant, 1)) || bytes.Equal(wrapContext(a.tenant, 1), wrapContext(a.tenant, 2)) {
			t.Fatalf("data keys of %q and %q", a.tenant, b.tenant)
		}
	})
}

func TestParseKEK(t *testing.T) {
	var key [kekSize]byte
	for i := range key {
		key[i] = byte(0xf0 + i) // "+" and "/" in the standard alphabet
	}
	h := hex.EncodeToString(key[:])
	const std, urlSafe = "8PHy8/T19vf4+fr7/P3+/wABAgMEBQYHCAkKCwwNDg8=", "8PHy8_T19vf4-fr7_P3-_wABAgMEBQYHCAkKCwwNDg8="
	for _, good := range []string{
		h, strings.ToUpper(h), h + "\n", h + "\r\n",
		std, std[:43], urlSafe, urlSafe[:43], std + "\n",
	} {
		k, err := ParseKEK(good)
		if err != nil || k.Reveal() != string(key[:]) {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{
		"", "\n", h[:63], h + "0", h[:62] + "zz", h + "\n\n", " " + h, h + " ", std[:42], std + "=", std[:43] + "A", std[:20] + "\n" + std[20:],
		std[:42] + "9", // bits beyond the 256th
		"correct horse battery staple", strings.Repeat("a", 32),
	} {
		_, err := ParseKEK(bad)
		if err == nil {
			t.Errorf("%q was taken", bad)
		} else if len(bad) > 3 && strings.Contains(err.Error(), strings.TrimSpace(bad)) {
			t.Errorf("the error repeats the text: %v", err)
		}
	}
}

// TestDerivedKeys fixes the derivation: other values would orphan every hash
// and every wrapped key out there. They were computed with Python's hmac.
func TestDerivedKeys(t *testing.T) {
	var key [kekSize]byte
	for i := range key {
		key[i] = byte(i)
	}
	k, err := ParseKEK(hex.EncodeToString(key[:]))
	if err != nil {
		t.Fatal(err)
	}
	for label, want := range map[string]string{
		"wrap": "b5314b861206e5ebc7ad0e72dd558023796592541c5a96b171fe06716fdde538",
		"":     "e915235fd849bea9b4c4dd0cc6a51ceefeefe17072b6b75be769dabe1e2be6ad",
	} {
		if got := k.DeriveKey(label); hex.EncodeToString(got[:]) != want {
			t.Errorf("%q: %x", label, got)
		}
	}
	if got := k.fingerprint(); got != "677b5dcd2090a821" {
		t.Errorf("fingerprint %s", got)
	}
	defer func() {
		if recover() == nil {
			t.Error("a key was derived from none")
		}
	}()
	KEK{}.DeriveKey("wrap")
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
