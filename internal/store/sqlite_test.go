package store_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentgw/internal/store"
	"agentgw/internal/store/storetest"
)

// childFolder tells a copy of the test binary to be another process at the
// store of that folder.
const childFolder = "STORETEST_CHILD_FOLDER"

func TestMain(m *testing.M) {
	if folder := os.Getenv(childFolder); folder != "" {
		child(folder)
		return
	}
	code := m.Run()
	endShared()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func TestSQLite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) func() storetest.Store {
		folder := t.TempDir()
		return func() storetest.Store { return open(t, folder) }
	})
}

func open(t *testing.T, folder string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestNobodyElseReadsIt(t *testing.T) {
	// A wide umask must not matter. It is the process's, and no other test of
	// this package runs beside this one.
	defer syscall.Umask(syscall.Umask(0))
	folder := filepath.Join(t.TempDir(), "a", "data")
	s := open(t, folder)
	if err := s.AddKey(t.Context(), store.Key{ID: "k"}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"": 0o700, "state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600} {
		info, err := os.Stat(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%q has mode %o, want %o", name, got, want)
		}
	}
}

func TestAWideFileIsTightened(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, store.FileName)
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	open(t, folder)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

func TestOddFolders(t *testing.T) {
	for _, name := range []string{"with space", "a?mode=memory", "100%41", "a#b", "ü"} {
		folder := filepath.Join(t.TempDir(), name)
		if err := open(t, folder).AddKey(t.Context(), store.Key{ID: "k"}); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(filepath.Join(folder, store.FileName)); err != nil || info.Size() == 0 {
			t.Errorf("%q: nothing was written there: %v", name, err)
		}
		if keys, err := open(t, folder).Keys(t.Context()); err != nil || len(keys) != 1 {
			t.Errorf("%q: %d keys, %v", name, len(keys), err)
		}
	}
}

func TestOpenNamesTheFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, store.FileName)
	if err := os.WriteFile(path, []byte(strings.Repeat("not a database. ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), folder); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error is %v", err)
	}
	blocked := filepath.Join(folder, "file")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), filepath.Join(blocked, "data")); err == nil || !strings.Contains(err.Error(), blocked) {
		t.Errorf("error is %v", err)
	}
}

func TestNewerTablesAreRefused(t *testing.T) {
	folder := t.TempDir()
	open(t, folder)
	raw, err := sql.Open("sqlite", filepath.Join(folder, store.FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.Exec(`PRAGMA user_version = 99`); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Open(t.Context(), folder); !errors.Is(err, store.ErrNewer) {
		t.Errorf("error is %v", err)
	}
}

// TestARemovedKeyLeavesNoTrace: the bytes of a removed params key are in none of the
// files, where they were before, though others have the store open and go on writing.
func TestARemovedKeyLeavesNoTrace(t *testing.T) {
	folder := t.TempDir()
	here, there := open(t, folder), open(t, folder)
	traces := func(of []byte) (found []string) {
		t.Helper()
		files, err := os.ReadDir(folder)
		if err != nil || len(files) < 2 {
			t.Fatal(files, err)
		}
		for _, f := range files {
			b, err := os.ReadFile(filepath.Join(folder, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(b, of) {
				found = append(found, f.Name())
			}
		}
		return found
	}
	wrapped := func(i int) []byte { return bytes.Repeat([]byte(fmt.Sprintf("wrapped%04d", i)), 6) }
	const n = 200 // of several pages
	for i := range n {
		k := store.ParamsKey{ID: fmt.Sprint(i), Tenant: fmt.Sprintf("t%d", i%100), Wrapped: wrapped(i), CreatedAt: time.Unix(1, 0)}
		if i >= 100 { // the second key of the tenant
			if _, err := here.RemoveParamsKey(t.Context(), k.Tenant, time.Unix(2, 0)); err != nil {
				t.Fatal(err)
			}
		}
		if err := here.AddParamsKeys(t.Context(), k); err != nil {
			t.Fatal(err)
		}
	}
	if err := there.AddKey(t.Context(), store.Key{ID: "k"}); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if got := traces(wrapped(i)); i < 100 && len(got) > 0 || i >= 100 && len(got) == 0 {
			t.Errorf("key %d stands in %q", i, got)
		}
	}
	if _, err := there.RemoveParamsKey(t.Context(), "t7", time.Unix(3, 0)); err != nil {
		t.Fatal(err)
	}
	if got := traces(wrapped(107)); len(got) > 0 {
		t.Errorf("the removed key stands in %q", got)
	}
}

// TestARemovalThatCannotCleanSaysSo: while another process is in the middle of a
// read the log of writes cannot be cut. The key is gone, and to do it again cleans.
func TestARemovalThatCannotCleanSaysSo(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder)
	if err := s.AddParamsKeys(t.Context(), store.ParamsKey{ID: "1", Tenant: "t", Wrapped: []byte("wrapped-by-the-vault-key")}); err != nil {
		t.Fatal(err)
	}
	if err := s.SetBusyTimeout(t.Context(), 20*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	reader, err := sql.Open("sqlite", filepath.Join(folder, store.FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	tx, err := reader.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	var n int
	if err := tx.QueryRow(`SELECT count(*) FROM params_keys`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RemoveParamsKey(t.Context(), "t", time.Unix(2, 0)); !errors.Is(err, store.ErrTraces) {
		t.Fatalf("error is %v", err)
	}
	if keys, err := s.ParamsKeys(t.Context()); err != nil || len(keys) != 1 || keys[0].Wrapped != nil {
		t.Fatalf("%+v, %v", keys, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RemoveParamsKey(t.Context(), "t", time.Unix(2, 0)); !errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrTraces) {
		t.Errorf("error is %v", err)
	}
	for _, name := range []string{store.FileName, store.FileName + "-wal"} {
		if b, err := os.ReadFile(filepath.Join(folder, name)); err != nil || bytes.Contains(b, []byte("wrapped-by-the-vault-key")) {
			t.Errorf("%s: the removed key stands in it, %v", name, err)
		}
	}
}

// TestManyOpenAtOnce: processes that start together make the tables once.
func TestManyOpenAtOnce(t *testing.T) {
	folder := t.TempDir()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s, err := store.Open(t.Context(), folder)
			if err != nil {
				t.Error(err)
				return
			}
			if err := s.AddKey(t.Context(), store.Key{ID: fmt.Sprint(i), Digest: [32]byte{byte(i)}}); err != nil {
				t.Error(err)
			}
			_ = s.Close()
		})
	}
	wg.Wait()
	if keys, err := open(t, folder).Keys(t.Context()); err != nil || len(keys) != 8 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
}

// TestAnotherProcess changes the store from a process of its own, which is then
// killed: what it acknowledged is seen, and nobody is locked out.
func TestAnotherProcess(t *testing.T) {
	folder := t.TempDir()
	here := open(t, folder)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childFolder+"="+folder)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	goOn, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acknowledged := 0
	lines := bufio.NewScanner(out)
	for acknowledged < 20 && lines.Scan() {
		acknowledged++
		if _, err := fmt.Fprintln(goOn); err != nil { // both write now; one that never stopped would starve the other
			t.Fatal(err)
		}
		if err := here.AddKey(t.Context(), store.Key{ID: fmt.Sprintf("here-%d", acknowledged), Digest: [32]byte{1, byte(acknowledged)}}); err != nil {
			t.Error(err)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		acknowledged++
	}
	_ = cmd.Wait() // killed, as it should be
	keys, err := here.Keys(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	there := 0
	for _, k := range keys {
		if strings.HasPrefix(k.ID, "there-") {
			there++
		}
	}
	// One more may have been stored and not said.
	if acknowledged < 20 || there < acknowledged || there > acknowledged+1 {
		t.Errorf("the other process acknowledged %d keys, %d are there", acknowledged, there)
	}
	if g, err := here.Generation(t.Context()); err != nil || g != int64(len(keys)) {
		t.Errorf("generation %d after %d changes, %v", g, len(keys), err)
	}
}

// child adds keys and says so, each when it is told to go on, until it is killed.
func child(folder string) {
	ctx := context.Background()
	s, err := store.Open(ctx, folder)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for i := 1; i < 1<<14; i++ {
		k := store.Key{ID: fmt.Sprintf("there-%d", i), Digest: [32]byte{2, byte(i), byte(i >> 8)}, CreatedAt: time.Unix(1, 0)}
		if err := s.AddKey(ctx, k); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(i)
		if _, err := fmt.Scanln(); errors.Is(err, io.EOF) {
			os.Exit(1)
		}
	}
}
