package main

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Cobra's own completion and help commands end with 0 whatever they are asked
// for, and print no JSON.

var shells = []string{"bash", "zsh", "fish", "powershell"}

func (c *cli) completionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "completion SHELL",
		Short: "Print a completion script for bash, zsh, fish or powershell",
		Long: `Print a completion script for bash, zsh, fish or powershell.

In bash, for this session: source <(agentgw completion bash)`,
		ValidArgs: shells,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || !slices.Contains(shells, args[0]) {
				return fmt.Errorf("%s wants one of %s", cmd.CommandPath(), strings.Join(shells, ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			var script bytes.Buffer
			if err := writeCompletion(cmd.Root(), args[0], &script); err != nil {
				return exit(exitCannotRun, err)
			}
			if asJSON {
				return c.printJSON(map[string]string{"shell": args[0], "script": script.String()})
			}
			_, err := c.stdout.Write(script.Bytes())
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

func writeCompletion(root *cobra.Command, shell string, w io.Writer) error {
	switch shell {
	case "bash":
		return root.GenBashCompletionV2(w, true)
	case "zsh":
		return root.GenZshCompletion(w)
	case "fish":
		return root.GenFishCompletion(w, true)
	}
	return root.GenPowerShellCompletionWithDesc(w)
}

func (c *cli) helpCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil {
				return aCommand(cmd.Root(), args)
			}
			if len(rest) > 0 {
				return aCommand(about, rest)
			}
			about.InitDefaultHelpFlag() // which its own run would add
			about.InitDefaultVersionFlag()
			if !asJSON {
				return about.Help()
			}
			var text bytes.Buffer
			about.SetOut(&text)
			if err := about.Help(); err != nil {
				return err
			}
			return c.printJSON(map[string]string{"command": about.CommandPath(), "help": text.String()})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print as JSON")
	return cmd
}

// needCommand is for a group of commands that was named without any of them.
func (c *cli) needCommand(cmd *cobra.Command, _ []string) error {
	cmd.SetOut(c.stderr)
	if err := cmd.Help(); err != nil {
		return err
	}
	return exit(exitUsage, nil)
}
