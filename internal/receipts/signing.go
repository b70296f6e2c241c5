package receipts

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/mod/sumdb/note"
)

const (
	signingKeyFile = "receipt-signing-key"
	originPrefix   = "agentgate/"
	tagInfo        = "agentgate receipt tag v1"
	tagBytes       = 16
	tagText        = 22 // tagBytes in unpadded base64
)

// signing is what the writer of a log knows: its key. It has no String that
// could show it, and is never part of an error.
type signing struct {
	origin string
	vkey   string
	signer note.Signer
	verify note.Verifiers
	macs   sync.Pool // of *tagMAC
}

// loadSigning reads the signing key of the data folder.
func loadSigning(dir string) (*signing, error) {
	path := filepath.Join(dir, signingKeyFile)
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s, err := parseSigning(strings.TrimSuffix(string(text), "\n"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// createSigning makes a log id and a key and stores them, never over another.
func createSigning(dir string) (*signing, error) {
	var id [16]byte
	rand.Read(id[:])
	skey, _, err := note.GenerateKey(rand.Reader, originPrefix+hex.EncodeToString(id[:]))
	if err != nil {
		return nil, err
	}
	if err := writeNew(filepath.Join(dir, signingKeyFile), []byte(skey+"\n"), 0o600); err != nil {
		return nil, err
	}
	return parseSigning(skey)
}

var errSigningKey = errors.New("not a receipt signing key (PRIVATE+KEY+agentgate/<log id>+<hash>+<base64>)")

// parseSigning takes the text apart itself, beside note.NewSigner, because the
// seed is needed for the tag key too and a Signer does not give it back.
func parseSigning(skey string) (*signing, error) {
	parts := strings.SplitN(skey, "+", 5)
	signer, err := note.NewSigner(skey)
	if err != nil || len(parts) != 5 || !strings.HasPrefix(signer.Name(), originPrefix) {
		return nil, errSigningKey
	}
	key, err := base64.StdEncoding.DecodeString(parts[4])
	if err != nil || len(key) != 1+ed25519.SeedSize {
		return nil, errSigningKey
	}
	seed := key[1:]
	public := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
	vkey, err := note.NewEd25519VerifierKey(signer.Name(), public)
	if err != nil {
		return nil, err
	}
	verifier, err := note.NewVerifier(vkey)
	if err != nil {
		return nil, err
	}
	tagKey, err := hkdf.Key(sha256.New, seed, nil, tagInfo, sha256.Size)
	if err != nil {
		return nil, err
	}
	s := &signing{origin: signer.Name(), vkey: vkey, signer: signer, verify: note.VerifierList(verifier)}
	s.macs.New = func() any { return &tagMAC{Hash: hmac.New(sha256.New, tagKey)} }
	return s, nil
}

// appendTag ends the open object line[from:], which is entry index of the log.
func (s *signing) appendTag(line []byte, from int, index uint64) []byte {
	tag := s.tag(line[from:], index)
	line = append(line, tagMember...)
	line = base64.RawURLEncoding.AppendEncode(line, tag[:])
	return append(line, `"}`...)
}

// tagHolds reports whether this log wrote the record line as entry index.
func (s *signing) tagHolds(line []byte, index uint64) bool {
	body := len(line) - tagLine
	if body < 0 {
		return false
	}
	want := s.tag(line[:body], index)
	text := base64.RawURLEncoding.AppendEncode(make([]byte, 0, tagText), want[:])
	return hmac.Equal(text, line[body+len(tagMember):len(line)-len(`"}`)])
}

// tagMAC is keyed for tags. Its arrays are what goes through the interface,
// which would otherwise be allocated for each record.
type tagMAC struct {
	hash.Hash
	place [8]byte
	sum   [sha256.Size]byte
}

func (s *signing) tag(body []byte, index uint64) (tag [tagBytes]byte) {
	mac := s.macs.Get().(*tagMAC)
	defer s.macs.Put(mac)
	mac.Reset()
	binary.BigEndian.PutUint64(mac.place[:], index)
	mac.Write(mac.place[:])
	mac.Write(body)
	copy(tag[:], mac.Sum(mac.sum[:0]))
	return tag
}

// VerifierKeyOf returns the verifier key of the log below the data folder dir
// without opening the log: it needs no lock and works while a gateway runs.
// The error is fs.ErrNotExist where the folder has no signing key yet.
func VerifierKeyOf(dir string) (string, error) {
	s, err := loadSigning(dir)
	if err != nil {
		return "", err
	}
	return s.vkey, nil
}

// writeNew writes a file that must not exist, whole or not at all.
func writeNew(path string, data []byte, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	if err := errors.Join(tmp.Chmod(mode), writeAndSync(tmp, data), tmp.Close()); err != nil {
		return err
	}
	// Link and not rename: a rename would replace a key that another process
	// has made in between, and with it everything that was signed by it.
	if err := os.Link(tmp.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func writeAndSync(f *os.File, data []byte) error {
	if _, err := f.Write(data); err != nil {
		return err
	}
	return f.Sync()
}
