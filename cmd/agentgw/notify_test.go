package main

import (
	"bytes"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"agentgw/internal/freeport"
)

// TestSupervisorIsTold: started with a socket to tell by, as systemd starts a unit of type
// notify, the gateway says that it is ready when it is, and that it stops when it begins to.
func TestSupervisorIsTold(t *testing.T) {
	folder := t.TempDir()
	short, err := os.MkdirTemp("", "n") // the name of a socket has room for a hundred bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(short)
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(short, "s"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if err := os.WriteFile(filepath.Join(folder, "registry.yaml"), []byte("version: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	admin := freeport.Address(t)
	gateway := exec.Command(program(t, folder), "serve", "--registry", filepath.Join(folder, "registry.yaml"), "--data", filepath.Join(folder, "data"),
		"--listen", "127.0.0.1:0", "--admin-listen", admin)
	gateway.Env = append(os.Environ(), "NOTIFY_SOCKET="+filepath.Join(short, "s"))
	var stderr bytes.Buffer
	gateway.Stderr = &stderr
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = gateway.Process.Kill() }()
	told := func() string {
		text := make([]byte, 100)
		_ = socket.SetReadDeadline(time.Now().Add(time.Minute))
		n, err := socket.Read(text)
		if err != nil {
			t.Fatalf("nothing was said: %v\n%s", err, stderr.String())
		}
		return string(text[:n])
	}
	if got := told(); got != "READY=1" {
		t.Fatalf("first it says %q", got)
	}
	res, err := http.Get("http://" + admin + "/readyz")
	if err != nil {
		t.Fatalf("it says that it is ready, and is not: %v", err)
	}
	_ = res.Body.Close()
	if err := gateway.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := told(); got != "STOPPING=1" {
		t.Fatalf("then it says %q", got)
	}
	if err := gateway.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
}
