package main

import (
	"net"
	"strings"
)

// What a supervisor is told, in the words of sd_notify(3).
const (
	stateReady    = "READY=1"
	stateStopping = "STOPPING=1"
)

// tellSupervisor tells systemd what state the process is in, where it was started to
// do so (Type=notify): then the environment names a socket that takes datagrams. Elsewhere
// it does nothing. Who did not hear of it gives up by a limit of his own, so that an error
// is worth a warning and no more.
func tellSupervisor(environ []string, state string) error {
	for _, variable := range environ {
		socket, found := strings.CutPrefix(variable, "NOTIFY_SOCKET=")
		if !found || socket == "" {
			continue
		}
		// A name that begins with @ is of no file; package net takes it as it is.
		conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.Write([]byte(state))
		return err
	}
	return nil
}
