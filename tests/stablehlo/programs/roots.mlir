// Collectives with a root: collective_reduce, and roots that are values.
module @reduce_to_the_first_of_each_group {
  func.func @f(%x: tensor<2xf32>) -> tensor<2xf32> {
    %0 = "stablehlo.collective_reduce"(%x) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %1 = stablehlo.maximum %a, %b : tensor<f32>
      stablehlo.return %1 : tensor<f32>
    }) {replica_groups = dense<[[2, 0], [1, 3]]> : tensor<2x2xi64>} : (tensor<2xf32>) -> tensor<2xf32>
    return %0 : tensor<2xf32>
  }
  func.func @main() {
    %0 = stablehlo.constant dense<[1.0, 8.0]> : tensor<2xf32>
    %1 = stablehlo.constant dense<[2.0, 7.0]> : tensor<2xf32>
    %2 = stablehlo.constant dense<[3.0, 6.0]> : tensor<2xf32>
    %3 = stablehlo.constant dense<[4.0, 5.0]> : tensor<2xf32>
    %r:4 = "interpreter.run_parallel"(%0, %1, %2, %3) {programs = [[@f], [@f], [@f], [@f]]} :
        (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) ->
        (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)
    check.expect_eq_const %r#0, dense<0.0> : tensor<2xf32>
    check.expect_eq_const %r#1, dense<[4.0, 7.0]> : tensor<2xf32>
    check.expect_eq_const %r#2, dense<[3.0, 8.0]> : tensor<2xf32>
    check.expect_eq_const %r#3, dense<0.0> : tensor<2xf32>
    func.return
  }
}

// -----

module @reduce_over_partitions {
  func.func @f(%x: tensor<i32>) -> tensor<i32> {
    %0 = "stablehlo.collective_reduce"(%x) ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %1 = stablehlo.add %a, %b : tensor<i32>
      stablehlo.return %1 : tensor<i32>
    }) {replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>} : (tensor<i32>) -> tensor<i32>
    return %0 : tensor<i32>
  }
  func.func @main() {
    %0 = stablehlo.constant dense<1> : tensor<i32>
    %1 = stablehlo.constant dense<2> : tensor<i32>
    %2 = stablehlo.constant dense<4> : tensor<i32>
    %3 = stablehlo.constant dense<8> : tensor<i32>
    %r:4 = "interpreter.run_parallel"(%0, %1, %2, %3) {programs = [[@f, @f], [@f, @f]]} :
        (tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>) -> (tensor<i32>, tensor<i32>, tensor<i32>, tensor<i32>)
    check.expect_eq_const %r#0, dense<0> : tensor<i32>
    check.expect_eq_const %r#1, dense<3> : tensor<i32>
    check.expect_eq_const %r#2, dense<0> : tensor<i32>
    check.expect_eq_const %r#3, dense<12> : tensor<i32>
    func.return
  }
}

// -----

module @roots_that_are_values {
  func.func @f(%x: tensor<i32>, %y: tensor<2xi32>, %root: tensor<2xi32>)
      -> (tensor<i32>, tensor<2xi32>, tensor<i32>, tensor<2xi32>) {
    %0:2 = "stablehlo.collective_broadcast"(%x, %y, %root) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>,
        has_dynamic_root} : (tensor<i32>, tensor<2xi32>, tensor<2xi32>) -> (tensor<i32>, tensor<2xi32>)
    %1:2 = "stablehlo.collective_reduce"(%x, %y, %root) ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %2 = stablehlo.add %a, %b : tensor<i32>
      stablehlo.return %2 : tensor<i32>
    }) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, has_dynamic_root} :
        (tensor<i32>, tensor<2xi32>, tensor<2xi32>) -> (tensor<i32>, tensor<2xi32>)
    return %0#0, %0#1, %1#0, %1#1 : tensor<i32>, tensor<2xi32>, tensor<i32>, tensor<2xi32>
  }
  func.func @main() {
    %x0 = stablehlo.constant dense<1> : tensor<i32>
    %y0 = stablehlo.constant dense<[2, 3]> : tensor<2xi32>
    %x1 = stablehlo.constant dense<10> : tensor<i32>
    %y1 = stablehlo.constant dense<[20, 30]> : tensor<2xi32>
    %root = stablehlo.constant dense<[1, 0]> : tensor<2xi32>
    %r:8 = "interpreter.run_parallel"(%x0, %y0, %root, %x1, %y1, %root) {programs = [[@f], [@f]]} :
        (tensor<i32>, tensor<2xi32>, tensor<2xi32>, tensor<i32>, tensor<2xi32>, tensor<2xi32>) ->
        (tensor<i32>, tensor<2xi32>, tensor<i32>, tensor<2xi32>, tensor<i32>, tensor<2xi32>, tensor<i32>, tensor<2xi32>)
    check.expect_eq_const %r#0, dense<10> : tensor<i32>
    check.expect_eq_const %r#1, dense<[2, 3]> : tensor<2xi32>
    check.expect_eq_const %r#2, dense<0> : tensor<i32>
    check.expect_eq_const %r#3, dense<[22, 33]> : tensor<2xi32>
    check.expect_eq_const %r#4, dense<10> : tensor<i32>
    check.expect_eq_const %r#5, dense<[2, 3]> : tensor<2xi32>
    check.expect_eq_const %r#6, dense<11> : tensor<i32>
    check.expect_eq_const %r#7, dense<0> : tensor<2xi32>
    func.return
  }
}

// -----

// Members of all partitions: a partition's before the next one's.
module @order_of_members {
  func.func @f(%x: tensor<1xi32>) -> tensor<4xi32> {
    %0 = "stablehlo.all_gather"(%x) {all_gather_dim = 0 : i64, replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>,
        channel_handle = #stablehlo.channel_handle<handle = 1, type = 0>} : (tensor<1xi32>) -> tensor<4xi32>
    return %0 : tensor<4xi32>
  }
  func.func @main() {
    %0 = stablehlo.constant dense<0> : tensor<1xi32>
    %1 = stablehlo.constant dense<1> : tensor<1xi32>
    %2 = stablehlo.constant dense<2> : tensor<1xi32>
    %3 = stablehlo.constant dense<3> : tensor<1xi32>
    %r:4 = "interpreter.run_parallel"(%0, %1, %2, %3) {programs = [[@f, @f], [@f, @f]]} :
        (tensor<1xi32>, tensor<1xi32>, tensor<1xi32>, tensor<1xi32>) ->
        (tensor<4xi32>, tensor<4xi32>, tensor<4xi32>, tensor<4xi32>)
    check.expect_eq_const %r#0, dense<[2, 0, 3, 1]> : tensor<4xi32>
    check.expect_eq_const %r#3, dense<[2, 0, 3, 1]> : tensor<4xi32>
    func.return
  }
}
