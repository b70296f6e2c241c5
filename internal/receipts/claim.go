package receipts

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// ClaimedOrigin is the origin of the log, or of the tenant's tree, that a folder (see
// Folder) or an export says it is of; "" where it says nothing, as an empty log does. It is
// for choosing the key to verify by among several that are all trusted, and proves nothing: what
// claims another origin than its own fails by the key that it gets.
func ClaimedOrigin(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.Mode().IsRegular() {
		return originOfExport(path, info.Size())
	}
	folder, err := Folder(path)
	if err != nil {
		return "", err
	}
	signed, err := NewestCheckpoint(folder)
	if err == nil {
		return OriginOfCheckpoint(signed), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	r := newReader(folder)
	defer r.close()
	line, _, _, err := r.next()
	if err != nil { // there is none: an empty log
		return "", nil
	}
	h, err := parseHeader(line)
	if err != nil {
		return "", nil // to say what is wrong is Verify's
	}
	return h.Log, nil
}

// originOfExport reads the last line of a file, which in an export is a checkpoint.
func originOfExport(path string, size int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	end := make([]byte, min(size, maxLine+1))
	if _, err := f.ReadAt(end, size-int64(len(end))); err != nil && err != io.EOF {
		return "", err
	}
	end = bytes.TrimSuffix(end, []byte("\n"))
	signed, err := parseCheckpointLine(end[bytes.LastIndexByte(end, '\n')+1:])
	if err != nil {
		return "", nil // cut off, which is VerifyExport's to say
	}
	return OriginOfCheckpoint(signed), nil
}

// OriginOfCheckpoint is whose a signed checkpoint says that it is: a log's, or a tenant's
// tree's; "" where it is none. Its signature is not looked at.
func OriginOfCheckpoint(signed []byte) string {
	text, ok := noteText(bytes.Trim(signed, asciiSpace))
	if !ok {
		return ""
	}
	c, err := parseCheckpoint(text)
	if err != nil {
		return ""
	}
	return c.Origin
}

// OriginOfKey is the origin of the log that a verifier key is of, or an error that is
// ErrUsage where it is none.
func OriginOfKey(vkey string) (string, error) {
	verifier, err := note.NewVerifier(vkey)
	if err != nil {
		return "", errKey
	}
	return verifier.Name(), nil
}

// LogOfTree is the origin of the log that a tenant's tree is of; a log's own origin stays.
func LogOfTree(origin string) string {
	log, _, _ := strings.Cut(origin, treeInfix)
	return log
}
