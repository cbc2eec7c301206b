// A program in Go on Weft, by gopjrt, a client of PJRT: it compiles StableHLO, runs it, and checks the result.
//
//	go mod tidy && WEFT_PJRT_PLUGIN=/usr/local/lib/weft/pjrt_weft.so go run .
package main

import (
	"fmt"
	"math"
	"os"

	"github.com/gomlx/gopjrt/pjrt"
)

const program = `
func.func @main(%x: tensor<2x3xf32>, %w: tensor<3x2xf32>) -> tensor<2x2xf32> {
  %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x2xf32>
  %z = stablehlo.tanh %y : tensor<2x2xf32>
  return %z : tensor<2x2xf32>
}`

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	plugin := must(pjrt.GetPlugin(os.Getenv("WEFT_PJRT_PLUGIN")))
	client := must(plugin.NewClient(nil))
	fmt.Println(client.Platform(), client.PlatformVersion())

	step := must(client.Compile().WithStableHLO([]byte(program)).Done())
	x := must(pjrt.ArrayToBuffer(client, []float32{1, -2, 3, 4, 5, -6}, 2, 3))
	w := must(pjrt.ArrayToBuffer(client, []float32{.1, 0, 0, .1, .1, .1}, 3, 2))
	results := must(step.Execute(x, w).Done())
	got, shape, err := pjrt.BufferToArray[float32](results[0])
	must(0, err)
	fmt.Println(shape, got)

	for i, product := range []float64{.4, .1, -.2, -.1} {
		if math.Abs(float64(got[i])-math.Tanh(product)) > 1e-6 {
			fmt.Fprintf(os.Stderr, "element %d: got %g, want %g\n", i, got[i], math.Tanh(product))
			os.Exit(1)
		}
	}
}
