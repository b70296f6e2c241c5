package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"agentgw/internal/literal"
)

// What stands in these instead of cobra's own checks: those repeat the argument
// that they did not expect, and the likeliest one after `credentials set` is the
// secret itself, which a log of the shell's errors would then keep.

// noArguments refuses any argument and says what to do instead.
func noArguments(instead string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		if instead == "" {
			instead = fmt.Sprintf("%s --help lists the flags", cmd.CommandPath())
		}
		return fmt.Errorf("%s takes no argument: %s", cmd.CommandPath(), instead)
	}
}

// oneArgument asks for exactly the argument of that name.
func oneArgument(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return fmt.Errorf("%s is missing: %s", name, cmd.UseLine())
		case 1:
			return nil
		}
		return fmt.Errorf("%d arguments where one %s is wanted: %s", len(args), name, cmd.UseLine())
	}
}

// atLeastOne asks for the argument of that name, once or more.
func atLeastOne(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("%s is missing: %s", name, cmd.UseLine())
		}
		return nil
	}
}

// atMostOne takes the argument of that name or none.
func atMostOne(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return fmt.Errorf("%d arguments where at most one %s is wanted: %s", len(args), name, cmd.UseLine())
		}
		return nil
	}
}

// aCommand refuses a word that is none of a group's commands.
func aCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var known []string
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			known = append(known, sub.Name())
		}
	}
	if near := literal.Nearest(args[0], known); near != "" {
		return fmt.Errorf("there is no such command; did you mean %s %s?", cmd.CommandPath(), near)
	}
	return fmt.Errorf("there is no such command; %s --help lists those that there are", cmd.CommandPath())
}

// flagError takes out of pflag's errors the rest of an argument that begins
// with a dash, which may be a secret that does.
func flagError(_ *cobra.Command, err error) error {
	if text, _, found := strings.Cut(err.Error(), " in -"); found && strings.HasPrefix(text, "unknown shorthand flag") {
		return errors.New(text)
	}
	return err
}
