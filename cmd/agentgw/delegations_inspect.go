package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"agentgw/internal/delegation"
)

func (c *cli) delegationsInspectCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect [TOKEN[,TOKEN...]]",
		Short: "Show what a delegation says, and whether it holds",
		Long: `Show what a delegation says, link by link, and whether it holds here and now, for
the agent and the grants that it names: exit code 1 if it does not. It is read from
standard input if it is not given.`,
		Args: atMostOne("TOKEN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := c.argumentOrInput(args)
			if err != nil {
				return err
			}
			return c.withStore(cmd, func(ctx context.Context, at home) error { return c.inspectDelegation(ctx, at, text, asJSON) })
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	addHomeFlags(cmd)
	return cmd
}

// inspected is a chain as inspect shows it.
type inspected struct {
	Holds  bool            `json:"holds"`
	Reason string          `json:"reason,omitempty"`
	Detail string          `json:"detail,omitempty"`
	Links  []inspectedLink `json:"links"`
	shown  []delegation.Shown
}

type inspectedLink struct {
	Claims   delegation.Claims `json:"claims"`
	Kid      string            `json:"kid,omitempty"`
	SignedBy string            `json:"signed_by,omitempty"` // thumbprint
	SHA256   string            `json:"sha256"`
	Signed   bool              `json:"signed"` // by who may sign it
}

func (c *cli) inspectDelegation(ctx context.Context, at home, text string, asJSON bool) error {
	kek, err := rootKEK(ctx, at)
	if err != nil {
		return exit(exitCannotRun, err)
	}
	trust, err := readTrust(ctx, at.store, kek, at.snapshot)
	if err != nil {
		return exit(exitCannotRun, err)
	}
	shown, v := delegation.Inspect(text, trust, at.settings.DelegationURI(), time.Now())
	in := inspected{Holds: v.Holds, Reason: string(v.Reason), Detail: v.Detail, Links: []inspectedLink{}, shown: shown}
	for i, s := range shown {
		in.Links = append(in.Links, inspectedLink{s.Claims, s.Kid, s.Signer, s.Hash, i < len(v.Chain.Links)})
	}
	if asJSON {
		err = c.printJSON(in)
	} else {
		err = c.printTable(in.print)
	}
	if err == nil && !v.Holds {
		return exit(exitNotHold, nil)
	}
	return err
}

func (in *inspected) print(w *tabwriter.Writer) {
	for i, l := range in.Links {
		s := &l.Claims
		fmt.Fprintf(w, "link %d\t%s\n", i+1, printable(s.ID))
		fmt.Fprintf(w, "  signed by\t%s\n", signedInWords(l))
		fmt.Fprintf(w, "  lets\t%s\n", printable(s.Actor.Agent))
		fmt.Fprintf(w, "  act for\t%s\n", printable(s.User))
		fmt.Fprintf(w, "  of the tenant\t%s\n", orDash(printable(s.Tenant)))
		fmt.Fprintf(w, "  at\t%s\n", printable(s.Audience))
		for _, d := range s.Details {
			for _, a := range d.Actions {
				fmt.Fprintf(w, "  calling\t%s\n", printable(d.Service+"."+a))
			}
			for _, name := range slices.Sorted(maps.Keys(d.Constraints)) {
				fmt.Fprintf(w, "    with\t%s\n", printable(name+" "+d.Constraints[name].String()))
			}
		}
		from, until := time.Unix(s.From, 0), time.Unix(s.Until, 0)
		fmt.Fprintf(w, "  from\t%s\n  until\t%s\n", when(&from), when(&until))
		if s.Confirm != nil && *s.Depth > 0 {
			fmt.Fprintf(w, "  handed on\tno deeper than %d more, by the key %s\n", *s.Depth, s.Confirm.Thumbprint)
		} else {
			fmt.Fprintln(w, "  handed on\tnever")
		}
		fmt.Fprintf(w, "  SHA-256\t%s\n", l.SHA256)
	}
	if in.Holds {
		fmt.Fprintln(w, "it holds")
		return
	}
	fmt.Fprintf(w, "it does not hold\t%s: %s\n", in.Reason, in.Detail)
}

func signedInWords(l inspectedLink) string {
	by := "the root " + printable(l.Kid)
	if l.Kid == "" {
		by = "the key " + l.SignedBy
	}
	if !l.Signed {
		return by + ", it says: not verified"
	}
	return by
}
