package receipts

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// A tenant's checkpoint is signed with the log's key under the name of the
// tenant's tree, as a signed note wants it of whatever has an origin of its own:
// its verifier key follows from the log's, and what is signed for one tree is not
// taken for another.

// treeSigner is that of one tree. It implements note.Signer.
type treeSigner struct {
	note.Verifier // for its name and its hash
	private       ed25519.PrivateKey
}

func (s treeSigner) Sign(msg []byte) ([]byte, error) { return ed25519.Sign(s.private, msg), nil }

// signTree signs a checkpoint of a tenant's tree.
func (s *signing) signTree(c checkpoint) ([]byte, error) {
	verifier, err := treeVerifier(c.Origin, s.private.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, err
	}
	return c.sign(treeSigner{verifier, s.private})
}

func treeVerifier(origin string, key ed25519.PublicKey) (note.Verifier, error) {
	vkey, err := note.NewEd25519VerifierKey(origin, key)
	if err != nil {
		return nil, err
	}
	return note.NewVerifier(vkey)
}

// treeKeys are the verifier keys of a log and of the tenants' trees in it.
type treeKeys struct {
	log  note.Verifier
	key  ed25519.PublicKey
	vkey string // the log's
}

// newTreeKeys takes the log's verifier key.
func newTreeKeys(vkey string) (*treeKeys, error) {
	log, err := note.NewVerifier(vkey)
	if err != nil {
		return nil, err
	}
	// note.NewVerifier has checked the form, and does not give the key back.
	key, err := base64.StdEncoding.DecodeString(strings.SplitN(vkey, "+", 3)[2])
	if err != nil || len(key) != 1+ed25519.PublicKeySize {
		return nil, errors.New("not an Ed25519 key")
	}
	if again, err := note.NewEd25519VerifierKey(log.Name(), key[1:]); err != nil || again != vkey {
		return nil, errors.New("not in the one spelling of a key")
	}
	return &treeKeys{log, key[1:], vkey}, nil
}

// Verifier implements note.Verifiers.
func (k *treeKeys) Verifier(name string, hash uint32) (note.Verifier, error) {
	v := k.log
	if k.isTree(name) {
		var err error
		if v, err = treeVerifier(name, k.key); err != nil {
			return nil, err
		}
	}
	if name != v.Name() || hash != v.KeyHash() {
		return nil, &note.UnknownVerifierError{Name: name, KeyHash: hash}
	}
	return v, nil
}

// rotated is a hint where a note names no key of these and yet this log or a tree in
// it: by one that follows or went before. Anybody can write that, so it proves nothing.
func (k *treeKeys) rotated(err *note.UnverifiedNoteError) string {
	for _, s := range err.Note.UnverifiedSigs {
		if s.Name == k.log.Name() || k.isTree(s.Name) {
			return "; it names another key for the same log, which may have been handed over to a new key (rotation): the log's own verification lists its keys, and /v1/log/key has the newest"
		}
	}
	return ""
}

// isTree reports whether origin is spelled as that of a tenant's tree in the log.
func (k *treeKeys) isTree(origin string) bool {
	id, ok := strings.CutPrefix(origin, k.log.Name()+treeInfix)
	return ok && len(id) == 2*len(treeID{}) && strings.Trim(id, lowerHex) == ""
}
