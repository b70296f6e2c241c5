// Package redistest starts real Redis servers for tests: those of Debian's package or
// of Valkey's, on a free port, with nothing on disk.
package redistest

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentgw/internal/freeport"
)

// Server is one running server.
type Server struct {
	Addr string
	args []string
	bin  string
	cmd  *exec.Cmd
	t    testing.TB

	password string // to run commands

	mu   sync.Mutex
	conn net.Conn // to run commands over; nil: none yet
	read *bufio.Reader
}

// Start starts a server that ends with the test, or skips the test where none is
// installed, or where SERVICES=off says that none is to be. args are options as on its
// command line.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	s := &Server{t: t, bin: binary(), Addr: freeport.Address(t)}
	if s.bin == "" || os.Getenv("SERVICES") == "off" {
		t.Skip("no real Redis: neither redis-server nor valkey-server is on the path, or SERVICES=off")
	}
	_, port, _ := net.SplitHostPort(s.Addr)
	s.args = append([]string{"--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir()}, args...)
	s.Again()
	t.Cleanup(s.Stop)
	return s
}

func binary() string {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// Again starts it after a Stop, at the same address and, unless it was told to save, empty.
// more are options besides those that it has.
func (s *Server) Again(more ...string) {
	s.t.Helper()
	s.cmd = exec.Command(s.bin, append(s.args[:len(s.args):len(s.args)], more...)...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if s.ping() {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatal("redis-server does not answer")
		}
	}
}

// Stop kills it.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Signal(syscall.SIGCONT)
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
}

// Pause has it hang, with its connections open, until Resume.
func (s *Server) Pause() { _ = s.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }

// URL is where it is.
func (s *Server) URL() string { return "redis://" + s.Addr }

// Do runs one command, and returns the reply as it stands on the wire.
func (s *Server) Do(args ...string) string {
	s.t.Helper()
	reply, err := s.do(args...)
	if err != nil {
		s.t.Fatalf("%s: %v", args[0], err)
	}
	return reply
}

func (s *Server) ping() bool {
	reply, err := s.do("PING")
	return err == nil && (strings.HasPrefix(reply, "+PONG") || strings.HasPrefix(reply, "-NOAUTH") || strings.HasPrefix(reply, "-LOADING"))
}

// do runs a command over the connection that there is, or a new one.
func (s *Server) do(args ...string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn != nil {
		if reply, err := s.exchange(args); err == nil {
			return reply, nil
		}
		_ = s.conn.Close()
	}
	var err error
	if s.conn, err = net.DialTimeout("tcp", s.Addr, 10*time.Second); err != nil {
		s.conn = nil
		return "", err
	}
	s.read = bufio.NewReader(s.conn)
	if s.password != "" {
		if _, err := s.exchange([]string{"AUTH", s.password}); err != nil {
			return "", err
		}
	}
	return s.exchange(args)
}

func (s *Server) exchange(args []string) (string, error) {
	if err := s.conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return "", err
	}
	text := "*" + strconv.Itoa(len(args)) + "\r\n"
	for _, a := range args {
		text += "$" + strconv.Itoa(len(a)) + "\r\n" + a + "\r\n"
	}
	if _, err := s.conn.Write([]byte(text)); err != nil {
		return "", err
	}
	text, err := reply(s.read)
	return strings.TrimSpace(text), err
}

// reply reads one as it stands on the wire.
func reply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return line, err
	}
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	switch line[0] {
	case '$':
		if n < 0 {
			return line, nil
		}
		rest := make([]byte, n+2)
		_, err = io.ReadFull(r, rest)
		return line + string(rest), err
	case '*':
		for ; n > 0 && err == nil; n-- {
			var one string
			one, err = reply(r)
			line += one
		}
	}
	return line, err
}
