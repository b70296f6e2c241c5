package receipts

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestCreateWhole: a file has its name once it is whole, and else there is none.
func TestCreateWhole(t *testing.T) {
	folder := t.TempDir()
	name := filepath.Join(folder, "export")
	full := errors.New("no space left on device")
	if err := createWhole(name, func(w io.Writer) error {
		_, err := io.WriteString(w, "half")
		return errors.Join(err, full)
	}); !errors.Is(err, full) {
		t.Error(err)
	}
	if left, _ := os.ReadDir(folder); len(left) > 0 {
		t.Errorf("%s is left", left)
	}
	if err := createWhole(name, func(w io.Writer) error {
		if _, err := os.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
			t.Error("it has its name before it is written")
		}
		_, err := io.WriteString(w, "whole")
		return err
	}); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(name); err != nil || string(text) != "whole" {
		t.Error(string(text), err)
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode() != 0o600 {
		t.Error(info, err)
	}
	// One that comes meanwhile is not replaced either.
	later := filepath.Join(folder, "later")
	if err := createWhole(later, func(w io.Writer) error {
		return os.WriteFile(later, []byte("theirs"), 0o600)
	}); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	if text, _ := os.ReadFile(later); string(text) != "theirs" {
		t.Errorf("%s", text)
	}
	if left, _ := os.ReadDir(folder); len(left) != 2 {
		t.Errorf("%s is left", left)
	}
}
