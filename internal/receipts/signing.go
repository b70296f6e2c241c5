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
	signingKeyFile    = "receipt-signing-key"
	newSigningKeyFile = "receipt-signing-key.new" // of a log that has no entry yet
	originPrefix      = "agentgate/"
	tagInfo           = "agentgate receipt tag v1"
	tagBytes          = 16
	tagText           = 22 // tagBytes in unpadded base64
)

// signing is what the writer of a log knows: its key. It has no String that
// could show it, and is never part of an error.
type signing struct {
	origin  string
	vkey    string
	signer  note.Signer
	private ed25519.PrivateKey
	verify  note.Verifiers
	fresh   bool      // it stands in newSigningKeyFile: no entry of its log is known to be on disk
	macs    sync.Pool // of *tagMAC
}

// A first start makes a key and begins a log, and may be killed in between. A key
// alone must not begin a log: then whoever removed the log would have the next
// start sign a second one with the key and the name of the first, and two
// checkpoints of one size would both be good. So a new key stands under another
// name until the log's first batch is on disk. Under its own it says that there
// was a log, and a start without one is refused.

// signingOf returns the key of the log below dir; begun says that there are
// segments. It makes one for a log that is still to be begun.
func signingOf(d disk, dir string, begun bool) (*signing, error) {
	s, err := loadSigning(d, dir, signingKeyFile)
	if !errors.Is(err, fs.ErrNotExist) {
		return s, err
	}
	s, err = loadSigning(d, dir, newSigningKeyFile)
	if !begun && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, errSigningKey)) {
		// Half of one may be there, of a start that was killed. It has signed
		// nothing: a segment is made only once the key is on disk.
		var id [16]byte
		rand.Read(id[:])
		s, err = createSigning(d, dir, newSigningKeyFile, originPrefix+hex.EncodeToString(id[:]))
	}
	if err != nil {
		return nil, err
	}
	s.fresh = true
	return s, nil
}

// place gives the key its own name, now that an entry of its log is on disk.
func (s *signing) place(d disk, dir string) error {
	if err := d.rename(filepath.Join(dir, newSigningKeyFile), filepath.Join(dir, signingKeyFile)); err != nil {
		return err
	}
	s.fresh = false
	return d.syncDir(dir)
}

// loadSigning reads a signing key of the data folder.
func loadSigning(d disk, dir, name string) (*signing, error) {
	path := filepath.Join(dir, name)
	text, err := readFile(d, path)
	if err != nil {
		return nil, err
	}
	s, err := parseSigning(strings.TrimSuffix(string(text), "\n"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// createSigning makes a key of the log of that origin and stores it in a file.
func createSigning(d disk, dir, name, origin string) (*signing, error) {
	skey, _, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name)
	// Half a key may be there, with any mode, or a link to somewhere else.
	if err := d.remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := d.open(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	err = errors.Join(writeAll(f, []byte(skey+"\n"), 0), syncAll(f), f.Close())
	if err := errors.Join(err, d.syncDir(dir)); err != nil {
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
	private := ed25519.NewKeyFromSeed(seed)
	public := private.Public().(ed25519.PublicKey)
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
	s := &signing{origin: signer.Name(), vkey: vkey, signer: signer, private: private, verify: note.VerifierList(verifier)}
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
	s, err := loadSigning(realDisk{}, dir, signingKeyFile)
	if err != nil {
		return "", err
	}
	return s.vkey, nil
}
