package receipts

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// quarantine copies what stands from offset on into a file of its own. Nothing
// but zeros is no data: space that a file system has given to the file and not
// filled. Then, and where nothing stands there, the result is nil.
func (l *Log) quarantine(f file, name string, offset int64) (*Recovery, error) {
	folder := filepath.Join(l.folder, quarantine)
	if err := makeFolder(l.disk, folder); err != nil {
		return nil, err
	}
	// One name for all: what a crash leaves there the next start writes anew.
	path := filepath.Join(folder, ".new")
	tmp, err := l.disk.open(path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer l.disk.remove(path)
	defer tmp.Close()
	hash := sha256.New()
	var seen zeros
	n, err := io.Copy(io.MultiWriter(&appender{file: tmp}, hash, &seen), io.NewSectionReader(f, offset, 1<<62))
	if err != nil || !seen.other {
		return nil, err
	}
	sum := hex.EncodeToString(hash.Sum(nil))
	kept := fmt.Sprintf("%s-%d-%s", name, offset, sum[:16])
	if err := errors.Join(syncAll(tmp), l.disk.rename(path, filepath.Join(folder, kept)), l.disk.syncDir(folder)); err != nil {
		return nil, err
	}
	return &Recovery{File: name, Offset: offset, Bytes: n, SHA256: sum}, nil
}

// appender writes to a file from its beginning.
type appender struct {
	file file
	at   int64
}

func (a *appender) Write(b []byte) (int, error) {
	if err := writeAll(a.file, b, a.at); err != nil {
		return 0, err
	}
	a.at += int64(len(b))
	return len(b), nil
}

// zeros is a writer that notices whether anything but zero bytes came by.
type zeros struct{ other bool }

func (z *zeros) Write(b []byte) (int, error) {
	z.other = z.other || len(bytes.Trim(b, "\x00")) > 0
	return len(b), nil
}
