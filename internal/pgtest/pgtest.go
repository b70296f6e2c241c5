// Package pgtest starts real PostgreSQL servers for tests: those of Debian's package or of
// the path, on a free port, with their files in a folder that goes with them.
package pgtest

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"agentgw/internal/freeport"
)

// Server is one running server. It takes the user postgres without a password.
type Server struct {
	bin, data, port string
	cmd             *exec.Cmd
	as              *syscall.SysProcAttr
	databases       atomic.Int64
}

// Start starts a server that ends with the test, or skips the test where none is installed,
// or where SERVICES=off says that none is to be.
func Start(t testing.TB) *Server {
	t.Helper()
	s := Begin(t)
	t.Cleanup(s.End)
	return s
}

// Begin is Start of a server that outlives the test, for others: whoever has it calls End.
func Begin(t testing.TB) *Server {
	t.Helper()
	bin := binaries()
	if bin == "" || os.Getenv("SERVICES") == "off" {
		t.Skip("no real PostgreSQL: initdb is neither on the path nor in /usr/lib/postgresql, or SERVICES=off")
	}
	data, err := os.MkdirTemp("", "pg") // a test's own folder is nobody else's to enter
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{bin: bin, data: data}
	if os.Getuid() == 0 { // as whom it refuses to run
		owner, err := user.Lookup("postgres")
		if err != nil {
			_ = os.RemoveAll(data)
			t.Skipf("no real PostgreSQL: it does not run as root, and there is no user postgres: %v", err)
		}
		uid, _ := strconv.Atoi(owner.Uid)
		gid, _ := strconv.Atoi(owner.Gid)
		if err := os.Chown(data, uid, gid); err != nil {
			t.Fatal(err)
		}
		s.as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	begin := s.command("initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--no-locale")
	if out, err := begin.CombinedOutput(); err != nil {
		_ = os.RemoveAll(data)
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	s.port = freeport.Port(t)
	s.Again(t)
	return s
}

// binaries is the folder of the newest server that is installed.
func binaries() string {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path)
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return ""
	}
	return filepath.Dir(slices.Max(found))
}

func (s *Server) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, name), args...)
	cmd.SysProcAttr, cmd.Dir = s.as, "/"
	return cmd
}

// Again starts it after a Stop, at the same address, with what it had.
func (s *Server) Again(t testing.TB) {
	t.Helper()
	var said bytes.Buffer
	s.cmd = s.command("postgres", "-D", s.data, "-p", s.port, "-h", "127.0.0.1", "-k", s.data, "-F")
	s.cmd.Stderr = &said
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		err := db.PingContext(ctx)
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.Stop()
			t.Fatalf("PostgreSQL does not answer: %v\n%s", err, said.String())
		}
	}
}

// Stop ends it at once, with whatever is under way. What was committed is kept.
func (s *Server) Stop() {
	if s.cmd.ProcessState == nil {
		_, _ = s.signal(syscall.SIGCONT) // it may have been halted when its test failed
		_ = s.cmd.Process.Signal(syscall.SIGQUIT)
		_ = s.cmd.Wait()
	}
}

// End ends it for good.
func (s *Server) End() {
	s.Stop()
	_ = os.RemoveAll(s.data)
}

// URL is the address of a database in it.
func (s *Server) URL(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%s/%s?sslmode=disable", s.port, database)
}

// Database makes an empty database, and returns its address.
func (s *Server) Database(t testing.TB) (url string) {
	t.Helper()
	name := fmt.Sprint("test", s.databases.Add(1))
	db, err := sql.Open("pgx", s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	return s.URL(name)
}
