// Programs that differ talk through channels of the host: what is sent first comes first, whatever tokens are shared.
module @ping_pong {
  func.func @first(%x: tensor<2xi64>, %t: !stablehlo.token) -> (tensor<2xi64>, !stablehlo.token) {
    %0 = "stablehlo.send"(%x, %t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>,
        is_host_transfer = true} : (tensor<2xi64>, !stablehlo.token) -> !stablehlo.token
    %1 = stablehlo.negate %x : tensor<2xi64>
    %2 = "stablehlo.send"(%1, %t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>,
        is_host_transfer = true} : (tensor<2xi64>, !stablehlo.token) -> !stablehlo.token
    %3:2 = "stablehlo.recv"(%t) {channel_handle = #stablehlo.channel_handle<handle = 2, type = 3>,
        is_host_transfer = true} : (!stablehlo.token) -> (tensor<2xi64>, !stablehlo.token)
    return %3#0, %3#1 : tensor<2xi64>, !stablehlo.token
  }
  func.func @second(%t: !stablehlo.token) -> tensor<2xi64> {
    %0:2 = "stablehlo.recv"(%t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 3>,
        is_host_transfer = true} : (!stablehlo.token) -> (tensor<2xi64>, !stablehlo.token)
    %1:2 = "stablehlo.recv"(%t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 3>,
        is_host_transfer = true} : (!stablehlo.token) -> (tensor<2xi64>, !stablehlo.token)
    %two = stablehlo.constant dense<2> : tensor<2xi64>
    %2 = stablehlo.multiply %0#0, %two : tensor<2xi64>
    %3 = stablehlo.add %2, %1#0 : tensor<2xi64>
    %4 = "stablehlo.send"(%3, %t) {channel_handle = #stablehlo.channel_handle<handle = 2, type = 2>,
        is_host_transfer = true} : (tensor<2xi64>, !stablehlo.token) -> !stablehlo.token
    return %1#0 : tensor<2xi64>
  }
  func.func @main() {
    %x = stablehlo.constant dense<[3, 4]> : tensor<2xi64>
    %t = stablehlo.after_all : !stablehlo.token
    %0:3 = "interpreter.run_parallel"(%x, %t, %t) {programs = [[@first], [@second]]} :
        (tensor<2xi64>, !stablehlo.token, !stablehlo.token) -> (tensor<2xi64>, !stablehlo.token, tensor<2xi64>)
    check.expect_eq_const %0#0, dense<[3, 4]> : tensor<2xi64>
    check.expect_eq_const %0#2, dense<[-3, -4]> : tensor<2xi64>
    func.return
  }
}
