package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// healthWait bounds the question: a gateway that takes longer is not ready, whatever
// it would have said.
const healthWait = 2 * time.Second

func (c *cli) healthCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask the gateway of this machine whether it can serve calls",
		Long: `Ask the gateway of this machine whether it can serve calls: GET /readyz at the
operators' address, which is found as serve finds it. It is for where neither a shell nor
curl is, as in a container. Exits with 0 where calls can be served, with 1 where the
gateway says that they cannot, and why, and with 3 where nobody answers in two seconds.`,
		Args: noArguments(""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			settings, _, err := c.readSettings(cmd, toAdminister)
			if err != nil {
				// A running gateway goes on with the registry that it has, whatever has
				// become of the file since.
				settings, err = c.loadSettings(cmd, nil, nil)
			}
			if err != nil {
				return exit(exitCannotRun, err)
			}
			address, err := nearAddress(settings.AdminListen)
			if err != nil {
				return exit(exitUsage, fmt.Errorf("%s: %w", settings.Place("AGENTGATE_ADMIN_LISTEN"), err))
			}
			status, said, err := askReady(cmd.Context(), address)
			if err != nil {
				return exit(exitCannotRun, err)
			}
			if asJSON {
				err = c.printJSON(map[string]any{"ready": status == http.StatusOK, "status": status, "said": said})
			} else {
				_, err = fmt.Fprintln(c.stdout, printable(said))
			}
			if err == nil && status != http.StatusOK {
				err = exit(exitNotHold, nil)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	addHomeFlags(cmd)
	return cmd
}

// nearAddress is where the gateway of this machine is reached that listens on an
// address: one that stands for every address of the machine is nobody's.
func nearAddress(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", err
	}
	if port == "0" {
		return "", fmt.Errorf("port 0 is any free one, which nobody but the gateway knows")
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() && ip.Is6() {
		host = "::1"
	} else if host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port), nil
}

// askReady returns what /readyz at the operators' address answers, in one line.
func askReady(ctx context.Context, address string) (status int, said string, err error) {
	if ctx == nil {
		ctx = context.Background() // cobra's, if nobody gave it one
	}
	ctx, cancel := context.WithTimeout(ctx, healthWait)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return 0, "", err
	}
	direct := &http.Transport{DisableKeepAlives: true} // by no proxy of the environment
	res, err := direct.RoundTrip(r)
	if err != nil {
		return 0, "", fmt.Errorf("no gateway answers at %s: %w", address, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, 4<<10))
	if err != nil {
		return 0, "", err
	}
	return res.StatusCode, strings.Join(strings.Fields(string(text)), " "), nil
}
