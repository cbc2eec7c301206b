module example

go 1.24

require github.com/gomlx/gopjrt v0.9.1
